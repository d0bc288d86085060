"""Stalls of local jobs: their report, their notification, and the last resort for stacks."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import JobPaths, LogPaths, file_name
from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.scheduling.stalls import StallRule
from torchx.supervisor.policies import Cancel, Order
from torchx.supervisor.policy import Gang
from torchx.supervisor.process import python_command
from torchx.supervisor.replicas import Replicas, Running
from torchx.supervisor.stalls.actions import Stalls, start_logged

with lazy_imports:
    from torchx.machine import ports
    from torchx.supervisor.collectives import flight_recorder, nccl_ras

REPORTER, ABORTER = "torchx.supervisor.stalls.report", "torchx.machine.aborter"

ABORT_WITHIN = 10.0
"""Maximum seconds for the program that aborts processes."""

PAUSE = 0.01


class JobStalls(Stalls[Running]):
    """Detects stalls of a local job.

    Args:
        rule: its rule.
        record: the job.
        paths: its record.
        replicas: its replicas.
        gang: its rules.
        note: appends to its events.
        now: returns the time of its clock.
    """

    def __init__(
        self,
        rule: StallRule,
        record: JobRecord,
        paths: JobPaths,
        replicas: Replicas,
        gang: Gang,
        note: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        names = [replicas.label(ordinal) for ordinal in range(len(replicas))]
        super().__init__(rule, paths.heartbeats, names, note, now)
        self._job, self._paths, self._replicas, self._gang = record, paths, replicas, gang
        self._logs = LogPaths(Path(record.log_dir))
        self._port = 0  # at which its NCCL answers queries; 0 if none is free
        if nccl_ras.VARIABLE not in os.environ:
            with suppress(StateError):
                self._lease = ports.PortLeases(["ras"])  # held until the end of this process
                (self._port,) = self._lease.ports.values()

    def variables(self, ordinal: int) -> Mapping[str, str]:
        """Returns the variables of the heartbeats, and those that switch on further sources, unless set."""
        role, _, _ = self.names[ordinal].rpartition("/")
        folder = self._logs.flight_recorder / file_name(role)
        found = {}
        if self._port:
            found = {nccl_ras.VARIABLE: f"localhost:{self._port}"}
        with suppress(OSError):
            files.make_folder(folder)
            found |= flight_recorder.variables(folder)
        unset = {name: value for name, value in found.items() if name not in os.environ}
        return {**super().variables(ordinal), **unset}

    def pause(self) -> float | None:
        """Returns the seconds until the next check; None once the job is cancelled."""
        if self._gang.cancelled:
            return None
        return super().pause()

    def due(self) -> Sequence[Order]:
        """Checks for stalls, unless the job is cancelled."""
        if self._gang.cancelled:
            return ()
        return super().due()

    def start_report(self) -> Process | None:
        """Starts the process that writes the report."""
        job = self._job
        argv = python_command(REPORTER, [job.handle, job.log_dir, str(self._port)])
        return start_logged(argv, self._paths.supervisor_log)

    def notify(self) -> None:
        """Sends the notification of a stall."""
        notifications.start(self._paths, "stall")

    def abort(self, order: Order, replicas: Sequence[int]) -> None:
        """Aborts the replicas that the order ends: all of them to cancel the job."""
        if isinstance(order, Cancel):
            replicas = sorted(running.ordinal for running in self._replicas.by_pid.values())
        ended = [self.names[ordinal] for ordinal in replicas]
        abort(self._job.handle, ended, self._paths.supervisor_log, self._replicas.read_all)


notify = notifications.start
"""Starts the sender of a notification, if it is planned."""


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
