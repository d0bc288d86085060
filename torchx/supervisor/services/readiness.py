"""The services of a local job: probes their replicas, and reports those that are ready or too late."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.machine.processes import Process
from torchx.supervisor.policy import Action, Gang
from torchx.supervisor.replicas import Replicas, Running

with lazy_imports:
    from torchx.machine import ports
    from torchx.services import rules
    from torchx.supervisor.services import probes


@dataclass
class Watched:
    """A replica that is not ready yet.

    Attributes:
        running: the replica.
        rule: the rule of its role.
        until: the end of its time limit, by the monotonic clock.
        next_at: the start of the next check.
        pause: seconds until the check after that.
        check: the current check.
        answer: the answer of the last one.
    """

    running: Running
    rule: rules.ServiceRule
    until: float
    next_at: float = 0.0
    pause: float = 0.05
    check: probes.Check | None = None
    answer: str = ""

    def pause_from(self, now: float) -> float:
        """Returns the seconds until the next check, its next poll, or the end of the time limit."""
        due = self.next_at if self.check is None else now + self.check.interval
        return max((min(due, self.until) if self.until > now else due) - now, 0.0)

    def is_late(self, now: float) -> bool:
        """Returns True if the time limit has ended, and a check has had an answer."""
        answered = self.answer or self.rule.probe.kind == rules.LOG
        return now > self.until + (0.0 if answered else 2 * probes.LONGEST_CHECK)


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
        self._rules = {n: rules.rule_of(role.service) for n, role in known}
        self._folders = {n: role.cwd for n, role in known}
        self._watched: dict[int, Watched] = {}
        self._overdue: dict[int, str] = {}
        self._commands: dict[int, probes.CommandCheck] = {}
        if known:  # loaded now: torchx may be upgraded while the job runs
            replicas.taps.append(self._read)
            assert probes.LONGEST_PAUSE

    def started(self, running: Running) -> None:
        """Handles the start of a replica."""
        rule = self._rules.get(running.ordinal)
        if rule is None:
            return
        watched = Watched(running, rule, time.monotonic() + rule.limit)
        if rule.probe.kind == rules.LOG:
            watched.check = probes.LineCheck(rule.probe.text)
        self._watched[running.ordinal] = watched

    def ended(self, ordinal: int) -> str:
        """Handles the end of a replica; returns why it was ended, if it was not ready in time."""
        watched = self._watched.pop(ordinal, None)
        if watched is not None and watched.check is not None:
            watched.check.close()
        return self._overdue.pop(ordinal, "")

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
        return min(watched.pause_from(now) for watched in self._watched.values())

    def due(self) -> tuple[list[Action], list[Process]]:
        """Checks the replicas.

        Returns:
            The actions that follow, and the replicas to end, as they were not ready in time.
        """
        actions: list[Action] = []
        late = []
        now = time.monotonic()
        for ordinal, watched in list(self._watched.items()):
            if self._is_ready(watched, now):
                del self._watched[ordinal]
                self._note("ready", r=ordinal, a=watched.running.attempt)
                actions += self._gang.ready(ordinal)
            elif watched.is_late(now):
                del self._watched[ordinal]
                if watched.check is not None:
                    watched.check.close()
                self._overdue[ordinal] = self._reason(watched)
                late.append(watched.running.process)
        return actions, late

    def _is_ready(self, watched: Watched, now: float) -> bool:
        if watched.rule.probe.kind == rules.STARTED:
            return True
        if watched.check is None:
            if now < watched.next_at:
                return False
            self._start(watched)
        answer = None if watched.check is None else watched.check.poll()
        if answer is None:
            return False
        if watched.check is not None:
            watched.check.close()
        watched.check, watched.answer, watched.next_at = None, answer, now + watched.pause
        watched.pause = min(2 * watched.pause, probes.LONGEST_PAUSE)
        return not answer

    def _start(self, watched: Watched) -> None:
        ordinal, probe = watched.running.ordinal, watched.rule.probe
        env = self._replicas.environment(ordinal)
        port = 0
        if probe.port:
            number = probe.port.encode()
            if not probe.port.isdigit():
                number = env.get(ports.port_variable(probe.port).encode(), b"")
            port = int(number) if number.isdigit() and int(number) < 65536 else 0
        try:
            watched.check = probes.start_check(probe, env, port, self._folders[ordinal])
        except OSError as error:
            watched.answer = error.strerror or str(error)
            watched.next_at = time.monotonic() + probes.LONGEST_PAUSE
        if isinstance(watched.check, probes.CommandCheck) and watched.check.pid is not None:
            self._commands[watched.check.pid] = watched.check

    def _reason(self, watched: Watched) -> str:
        no_answer = "no line matched" if watched.rule.probe.kind == rules.LOG else "no answer"
        answer = watched.answer or no_answer
        return f"not ready within {watched.rule.within}: probe {watched.rule.ready}: {answer}"

    def _read(self, ordinal: int, stream: int, data: bytes) -> None:
        watched = self._watched.get(ordinal)
        if watched is not None and isinstance(watched.check, probes.LineCheck):
            with contextlib.suppress(RecursionError):
                watched.check.feed(stream, data)
