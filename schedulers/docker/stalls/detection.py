"""Detects stalls of containers: their heartbeats are in a mounted file, their output in the engine's logs.

While there is progress, the logs are read once per limit only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from resource import struct_rusage

from torchx.jobs.events import Clock
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.json_limits import Object
from torchx.machine import files
from torchx.machine.processes import Process
from torchx.schedulers.docker import cancel as docker_cancel
from torchx.schedulers.docker import heartbeats
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.exec import execute_in
from torchx.schedulers.docker.folder import stalls_of
from torchx.schedulers.docker.marks import CANCELLED, STALLED
from torchx.schedulers.docker.policies import ContainerReplica
from torchx.schedulers.docker.rules.job import Job
from torchx.schedulers.shared.stalls import CANCEL, PROGRESS
from torchx.scheduling.stack_program import abort_in_replicas
from torchx.scheduling.stalls import StallRule
from torchx.scheduling.streams import Streams
from torchx.supervisor.policies import Cancel, Order
from torchx.supervisor.process import python_command
from torchx.supervisor.stalls.actions import Stalls, start_logged

REPORTER = "torchx.schedulers.docker.stalls.report"

REPORT_POLLED = 0.1
"""Seconds between two checks whether the report is written."""


class ContainerStalls(Stalls[ContainerReplica]):
    """Detects stalls of an application in containers, and reports them.

    Args:
        rule: its rule.
        engine: the engine.
        job: the application.
        paths: its folder.
        note: appends to its journal.

    Raises:
        OSError: the heartbeats cannot be read.
    """

    def __init__(
        self, rule: StallRule, engine: Engine, job: Job, paths: JobPaths, note: Callable[..., None]
    ) -> None:
        self._engine, self._job, self._paths, self._note_event = engine, job, paths, note
        self._replicas: dict[int, ContainerReplica] = {}
        names = [f"{role.name}/{replica}" for role, replica in job.members]
        super().__init__(rule, paths.heartbeats, names, note, Clock().now)
        paths.heartbeats.chmod(heartbeats.ANYBODY)
        if stalls_of(job.app_id, job.cfg).since is not None:
            note(PROGRESS)  # of a supervisor that died: its clocks begin again

    def started(self, replica: ContainerReplica) -> None:
        """Handles the start of an attempt."""
        self._replicas[replica.ordinal] = replica
        super().started(replica)

    def ended(self, replica: ContainerReplica, usage: struct_rusage | None) -> Object:
        """Handles the end of an attempt."""
        del self._replicas[replica.ordinal]
        return super().ended(replica, usage)

    def start_report(self) -> Process | None:
        """Starts the process that writes the report."""
        app_id = self._job.app_id
        logs = Path(JobRecord.load(self._paths.record).log_dir)
        with suppress(OSError):
            files.make_folder(logs)
        return start_logged(python_command(REPORTER, [app_id, str(logs)]), self._paths.supervisor_log)

    def pause(self) -> float | None:
        """Returns the seconds until the next check, or until the end of the reporter is looked for."""
        wait = super().pause()
        if wait is None or self.reporter is None:
            return wait
        return min(wait, REPORT_POLLED)

    def due(self) -> Sequence[Order]:
        """Checks for stalls if that is due; returns the requested reaction."""
        if self.reporter is not None:
            with suppress(ChildProcessError):
                self.reaped(*os.wait4(self.reporter, os.WNOHANG))
        wait = super().pause()
        if wait is None or wait > 0:
            return ()
        orders = super().due()
        for order in orders:
            self._note_cancel(order)
        return orders

    def abort(self, order: Order, replicas: Sequence[int]) -> None:
        """Aborts the replicas that the order ends: all of them to cancel the application."""
        mark = STALLED
        if isinstance(order, Cancel):
            replicas, mark = list(self._replicas), CANCELLED
        targets = [self._replicas[n].container for n in replicas if n in self._replicas]
        # first, so that the end of a container is not taken for a failure of its own
        docker_cancel.mark(self._engine, targets, mark)
        self._note_cancel(order)
        by_name = {(container.role, container.replica): container.id for container in targets}

        def run(role: str, replica: int, command: Sequence[str], streams: Streams) -> int:
            return execute_in(self._engine, by_name[role, replica], command, streams)

        abort_in_replicas(run, by_name)

    def _note_cancel(self, order: Order) -> None:
        if isinstance(order, Cancel) and not stalls_of(self._job.app_id, self._job.cfg).cancelled:
            self._note_event(CANCEL, why=order.reason.text)
