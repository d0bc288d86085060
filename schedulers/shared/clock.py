"""The clock of an engine, which may be on a machine with another clock than this one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TypeVar

from torchx.scheduling.responses import DescribeAppResponse
from torchx.specs.status import AttemptStatus, is_terminal

CLOCK_STEP = 2.0
"""Minimum seconds of a difference between two clocks; the header with the time has whole seconds."""
TIMES = ("started_at", "ended_at", "ready_at", "noticed_at", "submitted_at")

T = TypeVar("T", AttemptStatus, DescribeAppResponse)


class EngineClock:
    """The clock of an engine, as the header Date of its answers shows it.

    Attributes:
        ahead: seconds by which it is ahead of the clock of this machine.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """Returns the time of the engine, in seconds since the epoch."""
        return time.time() + self.ahead

    def read(self, date: str) -> None:
        """Notes the difference between the clocks, from the header of an answer."""
        with suppress(ValueError):
            ahead = parsedate_to_datetime(date).timestamp() - time.time()
            if abs(ahead) < CLOCK_STEP:
                ahead = 0.0
            if abs(ahead - self.ahead) > CLOCK_STEP:  # the others would change the times at each answer
                self.ahead = ahead

    def here(self, described: DescribeAppResponse, times: Sequence[str] = TIMES) -> DescribeAppResponse:
        """Returns a status with times by the clock of this machine, so that durations until now are right.

        The times of an application that has ended stay: their differences are right.

        Args:
            described: the status.
            times: the fields with times by the clock of the engine.
        """
        if not self.ahead or is_terminal(described.state):
            return described
        ahead = timedelta(seconds=self.ahead)

        def moved(status: T) -> T:
            return replace(
                status, **{t: getattr(status, t) - ahead for t in times if getattr(status, t, None)}
            )

        for role in described.roles_statuses:
            for replica in role.replicas:
                replica.attempts[:] = map(moved, replica.attempts)
        return moved(described)
