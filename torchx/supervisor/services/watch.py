"""A replica of a service until it is ready: its checks, and its time limit.

Slurm's nodes run a copy of this file.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from torchx.services.probe import LOG, STARTED, ServiceRule
from torchx.supervisor.services.probes import LONGEST_CHECK, LONGEST_PAUSE, Check, LineCheck

FIRST_PAUSE = 0.05
"""Seconds between the first two checks of a replica; doubled for each further one."""


class Watch:
    """Checks a replica at growing intervals until it is ready.

    Args:
        rule: the rule of its role.
        start: starts a check. It may raise OSError, and is called again later.
        age: seconds since the start of the replica.
    """

    def __init__(self, rule: ServiceRule, start: Callable[[], Check | None], age: float = 0.0) -> None:
        self._rule, self._start = rule, start
        self._until = time.monotonic() + rule.limit - age
        self._next_at = 0.0
        self._pause = FIRST_PAUSE
        self._check: Check | None = None
        if rule.probe.kind == LOG:
            self._check = LineCheck(rule.probe.text)
        self._answer = ""

    def pause_from(self, now: float) -> float:
        """Returns the seconds until the next check, its next poll, or the end of the time limit."""
        if self._check is None:
            due = self._next_at
        else:
            due = now + self._check.interval
        return max((min(due, self._until) if self._until > now else due) - now, 0.0)

    def is_ready(self, now: float) -> bool:
        """Starts a check if it is due, and polls it; returns True if the replica is ready."""
        if self._rule.probe.kind == STARTED:
            return True
        if self._check is None:
            if now < self._next_at:
                return False
            self._begin(now)
        answer = self._check.poll() if self._check is not None else None
        if answer is None:
            return False
        self.close()
        self._answer, self._next_at = answer, now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return not answer

    def is_late(self, now: float) -> bool:
        """Returns True if the time limit has ended, and a check has had an answer."""
        answered = self._answer or self._rule.probe.kind == LOG
        return now > self._until + (0.0 if answered else 2 * LONGEST_CHECK)

    @property
    def answer(self) -> str:
        """The last answer of a replica that is not ready."""
        return self._answer or ("no line matched" if self._rule.probe.kind == LOG else "no answer")

    def reason(self) -> str:
        """Returns the message about a replica that was not ready in time."""
        return not_ready(self._rule, self.answer)

    def extend(self, seconds: float) -> None:
        """Extends the time limit, as the replica was suspended."""
        self._until += seconds

    def feed(self, stream: int, data: bytes) -> None:
        """Handles output of the replica."""
        if isinstance(self._check, LineCheck):
            with contextlib.suppress(RecursionError):
                self._check.feed(stream, data)
            self._answer = self._check.answer

    def close(self) -> None:
        """Gives up the current check."""
        if self._check is not None:
            self._check.close()
            self._check = None

    def _begin(self, now: float) -> None:
        try:
            self._check = self._start()
        except OSError as error:
            self._answer = error.strerror or str(error)
            self._next_at = now + LONGEST_PAUSE


def not_ready(rule: ServiceRule, answer: str) -> str:
    """Returns the message about a replica that was not ready in time."""
    return f"not ready within {rule.within}: probe {rule.ready}: {answer}"
