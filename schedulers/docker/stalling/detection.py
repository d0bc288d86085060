"""Detects stalls of containers: their heartbeats are in a mounted file, their output in the engine's logs.

While there is progress, the logs are read once per limit only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone

from torchx.errors import StateError
from torchx.jobs.events import Clock, EventLog
from torchx.machine import files
from torchx.machine.processes import Process
from torchx.schedulers.docker import cancel as docker_cancel
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.frames import Line, seconds_of
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.exec import execute_in
from torchx.schedulers.docker.logs import read_log
from torchx.schedulers.docker.replay import Progress
from torchx.schedulers.docker.rules.marks import CANCELLED, STALLED
from torchx.schedulers.docker.stalling import files as stall_files
from torchx.schedulers.shared.stalls import CANCEL, PROGRESS
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.stack_exec import abort_in_replicas
from torchx.scheduling.streams import Streams
from torchx.supervisor.process import python_command
from torchx.supervisor.stall_actions import DueAction, Stalls, rule_of, start_logged

REPORTER = "torchx.schedulers.docker.stalling.report"

REPORT_POLLED = 0.1
"""Seconds between two checks whether the report is written."""


class ContainerStalls:
    """Detects stalls of an application in containers, reports them, and carries out the requested action.

    Args:
        engine: the engine.
        app_id: the application.
    """

    def __init__(self, engine: Engine, app_id: str) -> None:
        self._engine, self._app_id = engine, app_id
        self._folder = stall_files.stall_folder(app_id)
        self._clock = Clock()
        self._stalls: Stalls | None = None
        self._running: dict[int, Container] = {}
        self._seen: dict[str, bytes] = {}  # by container: the time of its last line
        self._progress: Progress | None = None
        self._journal: EventLog | None = None

    def follow(self, progress: Progress) -> None:
        """Watches the containers that are running now, until the next call."""
        if self._progress is None:
            self._begin(progress)
        self._progress = progress
        if self._stalls is None:
            return
        before, self._running = self._running, {}
        for ordinal, mine in enumerate(progress.replicas):
            container = mine[-1] if mine else None
            if container is not None and container.status == "running" and not container.mark:
                self._running[ordinal] = container
        if progress.cancelled or progress.end is not None:
            self._running = {}
        for ordinal in before.keys() - self._running.keys():
            self._stalls.ended(ordinal)
        for ordinal, container in self._running.items():
            old = before.get(ordinal)
            if old is None or (old.id, old.started) != (container.id, container.started):
                # it may have begun before this supervisor saw it
                age = max(self._engine.clock.now() - (container.started or 0.0), 0.0)
                self._stalls.started(ordinal, time.monotonic() - age)

    def _begin(self, progress: Progress) -> None:
        rule = rule_of(progress.job.cfg)
        if rule is None:
            return
        names = [f"{role.name}/{replica}" for role, replica in progress.job.members]
        try:
            files.make_folder(self._folder.path)
            self._journal = EventLog(self._folder.journal, self._clock)
            self._stalls = Stalls(
                rule,
                self._folder.heartbeats,
                names,
                self._note,
                self._clock.now,
                self._report,
                abort=self._abort,
            )
        except OSError:  # the job runs without
            return
        stall_files.open_to_containers(self._folder)
        if self._folder.read().since is not None:
            self._note(PROGRESS)  # of a supervisor that died: its clocks begin again

    def _note(self, event: str, **facts: object) -> None:
        with suppress(OSError):
            if self._journal is not None:
                self._journal.add(event, **facts)

    def _report(self) -> Process | None:
        argv = python_command(REPORTER, [self._app_id, str(self._folder.path)])
        return start_logged(argv, self._folder.log)

    def pause(self) -> float:
        """Returns the seconds until the next check."""
        if self._stalls is None:
            wait = None
        else:
            wait = self._stalls.pause()
        if wait is None or self._stalls is None:
            return math.inf
        if self._stalls.reporter is not None:
            return min(wait, REPORT_POLLED)
        return wait

    def check(self) -> None:
        """Checks for stalls if that is due, and carries out a due action."""
        stalls = self._stalls
        if stalls is None:
            return
        if stalls.reporter is not None:
            with suppress(ChildProcessError):
                pid, status = os.waitpid(stalls.reporter, os.WNOHANG)
                if pid:
                    stalls.reaped(pid, status)
        if stalls.watch is None or (stalls.pause() or 0.0) > 0:
            return
        self._read()
        due = stalls.due_action()
        if due is not None:
            self._act(due)

    def _read(self) -> None:
        """Reads the lines since the last check; an unreadable log counts as progress, to be safe."""
        running = list(self._running.items())
        found = in_parallel(lambda each: self._lines(each[1]), running)
        assert self._stalls is not None
        watch = self._stalls.watch
        assert watch is not None
        now, wall = time.monotonic(), self._engine.clock.now()
        for (ordinal, container), lines in zip(running, found, strict=True):
            if isinstance(lines, Exception):
                watch.output(ordinal, 1, b"\n", now)
                continue
            for at, (_, stream), data in lines:
                self._seen[container.id] = max(at, self._seen.get(container.id, b""))
                watch.output(ordinal, stream, data, now - max(wall - seconds_of(at), 0.0))

    def _lines(self, container: Container) -> list[Line]:
        """Returns the lines of a container since the last call; without a pattern only the last one."""
        seen = self._seen.get(container.id, b"")
        rule = None
        if self._progress is not None:
            rule = rule_of(self._progress.job.cfg)
        if rule is None or not rule.progress:
            query = LogQuery(tail=1)
        else:
            if seen:
                since = seconds_of(seen)
            else:
                since = container.started or 0.0
            query = LogQuery(since=datetime.fromtimestamp(since, timezone.utc))
        return [line for line in read_log(self._engine, container, query) if line[0] > seen]

    # --- actions ---------------------------------------------------------------------------------

    def _targets(self, due: DueAction) -> list[Container]:
        if due.name == "cancel":
            return list(self._running.values())
        return [self._running[ordinal] for ordinal in due.replicas if ordinal in self._running]

    def _abort(self, due: DueAction) -> None:
        targets = self._targets(due)
        # first, so that the end of a container is not taken for a failure of its own
        docker_cancel.mark(self._engine, targets, CANCELLED if due.name == "cancel" else STALLED)
        self._note_cancel(due)
        by_name = {(container.role, container.replica): container.id for container in targets}

        def run(role: str, replica: int, command: Sequence[str], streams: Streams) -> int:
            return execute_in(self._engine, by_name[role, replica], command, streams)

        abort_in_replicas(run, by_name)

    def _act(self, due: DueAction) -> None:
        if self._progress is not None:
            grace = self._progress.job.grace
        else:
            grace = docker_cancel.GRACE
        if due.name == "cancel":
            self._note_cancel(due)
            with suppress(StateError):
                docker_cancel.cancel(self._engine, self._app_id)
            return
        docker_cancel.end_all(self._engine, self._targets(due), STALLED, grace)

    def _note_cancel(self, due: DueAction) -> None:
        if due.name == "cancel" and not self._folder.read().cancelled:
            self._note(CANCEL, why=due.why)

    def close(self) -> None:
        """Ends the detection."""
        if self._stalls is not None:
            self._stalls.close()
            self._stalls = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None
