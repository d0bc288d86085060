"""Stalls of local jobs: their report, their notification, and the last resort for stacks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.supervisor.process import python_command
from torchx.supervisor.replicas import Replicas
from torchx.supervisor.stall_actions import DueAction, Stalls, rule_of, start_logged

REPORTER, ABORTER = "torchx.supervisor.stall_report", "torchx.machine.aborter"

ABORT_WITHIN = 10.0
"""Maximum seconds for the program that aborts processes."""

PAUSE = 0.01


def of_job(
    record: JobRecord,
    paths: JobPaths,
    replicas: Replicas,
    note: Callable[..., None],
    now: Callable[[], float],
) -> Stalls:
    """Returns the detection of stalls of a local job.

    Args:
        record: the job.
        paths: its record.
        replicas: its replicas, whose output is then watched.
        note: appends to its events.
        now: returns the time of its clock.
    """
    argv = python_command(REPORTER, [record.handle, record.log_dir])
    names = [replicas.label(ordinal) for ordinal in range(len(replicas))]

    def report() -> Process | None:
        return start_logged(argv, paths.supervisor_log)

    def notify() -> None:
        notifications.start(paths, "stall")

    def abort_before(due: DueAction) -> None:
        every = sorted(running.ordinal for running in replicas.by_pid.values())
        ended = [names[ordinal] for ordinal in (every if due.name == "cancel" else due.replicas)]
        abort(record.handle, ended, paths.supervisor_log, replicas.read_all)

    stalls = Stalls(rule_of(record.cfg), paths.heartbeats, names, note, now, report, notify, abort_before)
    if (watch := stalls.watch) is not None:
        replicas.watch = watch
        replicas.variables.append(watch.variables)
    return stalls


def abort(handle: str, replicas: Sequence[str], log: Path, read: Callable[[], None]) -> None:
    """Aborts the Python processes of replicas that are to be ended anyway, and waits for their output.

    Args:
        handle: the job.
        replicas: the replicas (``role/id``).
        log: the file for errors.
        read: reads the output that is available.
    """
    request = {"job": handle, "replicas": list(replicas)}
    child = start_logged(python_command(ABORTER, [json.dumps(request)]), log)
    if child is None:
        return
    end = time.monotonic() + ABORT_WITHIN
    with suppress(ChildProcessError):
        while not os.waitpid(child.pid, os.WNOHANG)[0]:
            if time.monotonic() > end:
                # it must not abort processes of a later attempt
                os.kill(child.pid, signal.SIGKILL)
            read()
            time.sleep(PAUSE)
    read()
