"""The services of a local job: probes their replicas, and reports those that are ready or too late."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torchx.end_causes import EndCause, Reason
from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.machine.processes import Process
from torchx.supervisor.policy import Action, Gang
from torchx.supervisor.replicas import Replicas, Running

with lazy_imports:
    from torchx.machine import ports, processes
    from torchx.services import probe as service_probe
    from torchx.supervisor.services import probes, watch

if TYPE_CHECKING:
    from torchx.services.probe import Probe
    from torchx.supervisor.services.probes import Check


class Watched(NamedTuple):
    """A replica that is not ready yet."""

    running: Running
    watch: watch.Watch


class Readiness:
    """Probes the replicas of services; does nothing in a job without services.

    Args:
        record: the job.
        replicas: its replicas.
        gang: its rules.
        note: appends to its events.
    """

    def __init__(self, record: JobRecord, replicas: Replicas, gang: Gang, note: Callable[..., None]) -> None:
        self._replicas, self._gang, self._note = replicas, gang, note
        known = [(n, role) for n, role, _ in record.replicas() if role.service is not None]
        self._rules = {n: service_probe.rule_of(role.service) for n, role in known}
        self._folders = {n: role.cwd for n, role in known}
        self._watched: dict[int, Watched] = {}
        self._overdue: dict[int, Reason] = {}
        self._commands: dict[int, probes.CommandCheck] = {}
        if known:  # loaded now: torchx may be upgraded while the job runs
            replicas.taps.append(self._read)
            assert watch.FIRST_PAUSE

    def started(self, running: Running) -> None:
        """Handles the start of a replica."""
        ordinal = running.ordinal
        rule = self._rules.get(ordinal)
        if rule is not None:
            start = functools.partial(self._start, ordinal, rule.probe)
            self._watched[ordinal] = Watched(running, watch.Watch(rule, start))

    def ended(self, ordinal: int) -> Reason | None:
        """Handles the end of a replica; returns why it was ended, if it was not ready in time."""
        watched = self._watched.pop(ordinal, None)
        if watched is not None:
            watched.watch.close()
        return self._overdue.pop(ordinal, None)

    def reaped(self, pid: int, status: int) -> bool:
        """Handles the end of another child process; returns True for the program of a probe."""
        command = self._commands.pop(pid, None)
        if command is not None:
            command.reaped(status)
        return command is not None

    def pause(self) -> float | None:
        """Returns the seconds until the next check or limit; None without replicas that are not ready."""
        if not self._watched:
            return None
        now = time.monotonic()
        return min(watched.watch.pause_from(now) for watched in self._watched.values())

    def due(self) -> tuple[list[Action], list[Process]]:
        """Checks the replicas.

        Returns:
            The actions that follow, and the replicas to end, as they were not ready in time.
        """
        actions: list[Action] = []
        late = []
        now = time.monotonic()
        for ordinal, (running, current) in list(self._watched.items()):
            if current.is_ready(now):
                del self._watched[ordinal]
                self._note("ready", r=ordinal, a=running.attempt)
                actions += self._gang.ready(ordinal)
            elif current.is_late(now):
                del self._watched[ordinal]
                current.close()
                self._overdue[ordinal] = Reason(current.reason(), EndCause.NOT_READY)
                late.append(running.process)
        return actions, late

    def _start(self, ordinal: int, probe: Probe) -> Check | None:
        env = self._replicas.environment(ordinal)
        number = b""
        if probe.port:
            number = env.get(ports.port_variable(probe.port).encode(), b"")
        port = probes.port_of(probe, number)
        spawn = functools.partial(processes.spawn, env=env, cwd=self._folders[ordinal])
        check = probes.start_check(probe, port, spawn)
        if isinstance(check, probes.CommandCheck) and check.pid is not None:
            self._commands[check.pid] = check
        return check

    def _read(self, ordinal: int, stream: int, data: bytes) -> None:
        watched = self._watched.get(ordinal)
        if watched is not None:
            watched.watch.feed(stream, data)
