"""The services of a local job: probes their replicas, and reports those that are ready or too late."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from resource import struct_rusage
from typing import TYPE_CHECKING

from torchx.end_causes import EndCause, Reason
from torchx.jobs.record import JobRecord
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.supervisor.policies import Fail, Interest, Order, Policy
from torchx.supervisor.policy import Gang
from torchx.supervisor.replicas import Replicas, Running

with lazy_imports:
    from torchx.machine import ports, processes
    from torchx.services import probe as service_probe
    from torchx.supervisor.services import probes, watch

if TYPE_CHECKING:
    from torchx.services.probe import Probe
    from torchx.supervisor.services.probes import Check


class Readiness(Policy[Running]):
    """Probes the replicas of services.

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
        self._watched: dict[int, tuple[Running, watch.Watch]] = {}  # the replicas that are not ready yet
        self._commands: dict[int, probes.CommandCheck] = {}
        assert watch.FIRST_PAUSE  # loaded now: torchx may be upgraded while the job runs

    def interest(self, ordinal: int) -> Interest:
        """Returns LINES for the replicas of services, whose probes may search them."""
        if ordinal in self._rules:
            return Interest.LINES
        return Interest.NOTHING

    def started(self, running: Running) -> None:
        """Handles the start of a replica."""
        ordinal = running.ordinal
        rule = self._rules.get(ordinal)
        if rule is not None:
            start = functools.partial(self._start, ordinal, rule.probe)
            self._watched[ordinal] = running, watch.Watch(rule, start)

    def ended(self, running: Running, usage: struct_rusage | None) -> Object:
        """Handles the end of a replica."""
        watched = self._watched.pop(running.ordinal, None)
        if watched is not None:
            watched[1].close()
        return {}

    def reaped(self, pid: int, status: int, usage: struct_rusage) -> bool:
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
        return min(current.pause_from(now) for _, current in self._watched.values())

    def due(self) -> list[Order]:
        """Checks the replicas; returns what follows from those that are ready, or not ready in time."""
        orders: list[Order] = []
        now = time.monotonic()
        for ordinal, (running, current) in list(self._watched.items()):
            if current.is_ready(now):
                del self._watched[ordinal]
                self._note("ready", r=ordinal, a=running.attempt)
                orders += self._gang.ready(ordinal)
            elif current.is_late(now):
                del self._watched[ordinal]
                current.close()
                orders.append(Fail((ordinal,), Reason(current.reason(), EndCause.NOT_READY)))
        return orders

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

    def output(self, ordinal: int, stream: int, data: bytes, at: float) -> None:
        """Handles output of a replica, which a probe may search."""
        watched = self._watched.get(ordinal)
        if watched is not None:
            watched[1].feed(stream, data)
