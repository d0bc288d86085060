"""Ends the Python processes of replicas by SIGABRT, so that they print their stacks themselves.

It runs wherever the replicas run, like ``stack_taker``, whose source precedes this one elsewhere.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from typing import Any

from torchx.machine.stack_taker import find, is_python, look_up, read

ENDED_WITHIN = 2.0
"""Maximum seconds for the processes to print their stacks."""


def abort(job: str, replicas: Any = None) -> None:
    """Aborts the Python processes of an application, without core files, and waits for their ends.

    Only those with a handler for the signal, such as that of ``PYTHONFAULTHANDLER``; others would print
    nothing. The launchers of ranks are left out.

    Args:
        job: the handle of the application; empty in a container, for the value of this process.
        replicas: only these replicas (``role/id``; default: all).
    """
    programs = programs_of(job or os.environ.get("TORCHX_JOB_ID", ""), replicas)
    left = [p for p in programs if is_python(p["pid"]) and handles_abort(p["pid"]) and runs(p)]
    for process in left:
        try:
            hard = resource.prlimit(process["pid"], resource.RLIMIT_CORE)[1]
            resource.prlimit(process["pid"], resource.RLIMIT_CORE, (0, hard))
            os.kill(process["pid"], signal.SIGABRT)
            os.kill(process["pid"], signal.SIGCONT)  # it may be stopped
        except OSError:
            pass
    end = time.monotonic() + ENDED_WITHIN
    while any(map(runs, left)) and time.monotonic() < end:
        time.sleep(0.01)


def programs_of(job: str, replicas: Any) -> list[dict[str, Any]]:
    """Returns the processes of some replicas without the launchers of ranks."""
    found = [p for p in find(job) if replicas is None or p["replica"] in replicas]
    with_ranks = {p["replica"] for p in found if p["rank"] is not None}
    return [p for p in found if p["rank"] is not None or p["replica"] not in with_ranks]


def handles_abort(pid: int) -> bool:
    """Returns True if a process has a handler for SIGABRT."""
    line = read(f"/proc/{pid}/status").partition(b"\nSigCgt:")[2].split()[:1]
    return bool(line) and bool(int(line[0], 16) >> (signal.SIGABRT - 1) & 1)


def runs(process: dict[str, Any]) -> bool:
    """Returns True if exactly this process runs."""
    entry = look_up(process["pid"])
    return entry is not None and entry["start"] == process["start"]


def main(argv: list[str]) -> None:
    """Aborts processes.

    Args:
        argv: a JSON object with the arguments of :func:`abort`.
    """
    abort(**json.loads(argv[0]))
