"""Stalls of local jobs: their report, their notification, and the last resort for stacks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import JobPaths, LogPaths, file_name
from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.supervisor.process import python_command
from torchx.supervisor.replicas import Replicas
from torchx.supervisor.stall_actions import DueAction, Stalls, rule_of, start_logged

with lazy_imports:
    from torchx.machine import ports
    from torchx.supervisor.collectives import flight_recorder, nccl_ras

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
    rule = rule_of(record.cfg)
    if rule is None:
        sources = None
    else:
        sources = Sources(LogPaths(Path(record.log_dir)), replicas)
    argv = python_command(REPORTER, [record.handle, record.log_dir, str(sources.port if sources else 0)])
    names = [replicas.label(ordinal) for ordinal in range(len(replicas))]

    def report() -> Process | None:
        return start_logged(argv, paths.supervisor_log)

    def notify() -> None:
        notifications.start(paths, "stall")

    def abort_before(due: DueAction) -> None:
        every = sorted(running.ordinal for running in replicas.by_pid.values())
        ended = [names[ordinal] for ordinal in (every if due.name == "cancel" else due.replicas)]
        abort(record.handle, ended, paths.supervisor_log, replicas.read_all)

    stalls = Stalls(rule, paths.heartbeats, names, note, now, report, notify, abort_before)
    if (watch := stalls.watch) is not None:
        replicas.watch = watch
        replicas.variables.append(watch.variables)
    if sources is not None:
        replicas.variables.append(sources.variables)
    return stalls


class Sources:
    """The sources beside the stacks: variables of the replicas switch them on, unless they are set.

    Args:
        logs: the logs of the job.
        replicas: its replicas.

    Attributes:
        port: the port at which its NCCL answers queries; 0 if none is free.
    """

    def __init__(self, logs: LogPaths, replicas: Replicas) -> None:
        self._logs, self._replicas = logs, replicas
        self._lease: ports.PortLeases | None = None  # held until the end of this process
        self.port = 0
        if nccl_ras.VARIABLE not in os.environ:
            with suppress(StateError):
                self._lease = ports.PortLeases(["ras"])
                (self.port,) = self._lease.ports.values()

    def variables(self, ordinal: int) -> dict[str, str]:
        """Returns the variables of a replica."""
        role, _, _ = self._replicas.label(ordinal).rpartition("/")
        folder = self._logs.flight_recorder / file_name(role)
        found = {}
        if self.port:
            found = {nccl_ras.VARIABLE: f"localhost:{self.port}"}
        with suppress(OSError):
            files.make_folder(folder)
            found |= flight_recorder.variables(folder)
        return {name: value for name, value in found.items() if name not in os.environ}


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
