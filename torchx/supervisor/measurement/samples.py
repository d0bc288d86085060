"""Turn the totals that processes have used since their start into samples."""

from __future__ import annotations

from torchx.machine.cgroups import Totals
from torchx.scheduling.measurement import Sample

NOTHING = Totals(0.0, 0, None, None)
"""The totals of processes that have just started."""


class Meter:
    """The samples of one attempt.

    Args:
        at: its start, seconds since the epoch.

    Attributes:
        before: the totals at the end of the last sample.
        received: bytes of output at that time.
        seen_at: that time.
    """

    __slots__ = ("before", "received", "seen_at")

    def __init__(self, at: float) -> None:
        self.seen_at = at
        self.before = NOTHING
        self.received = 0

    def sample(
        self,
        now: float,
        use: Totals,
        gpu: tuple[float | None, int | None] = (None, None),
        received: int | None = None,
    ) -> Sample:
        """Returns the sample of the time since the last one.

        Args:
            now: the time.
            use: the totals of its processes since their start, and their memory now.
            gpu: the utilisation of its GPUs now, and their memory in use.
            received: bytes of output since its start; None if unknown.
        """
        before, span = self.before, now - self.seen_at
        # a process that ends between its parent and this pass may take its counts with it
        cpu = max(use.cpu or 0.0, before.cpu or 0.0)
        self.before = Totals(cpu, use.memory, most(use.read, before.read), most(use.write, before.write))
        if received is None:
            output = None
        else:
            output = (received - self.received) / span
        self.seen_at, self.received = now, received or 0
        return Sample(
            now,
            span,
            (cpu - (before.cpu or 0.0)) / span,
            use.memory or None,  # 0: its processes have just ended
            *gpu,
            output,
            rate(self.before.read, span, before.read),
            rate(self.before.write, span, before.write),
        )


def rate(total: int | None, span: float, before: int | None = None) -> float | None:
    """Returns the growth of a total per second; None if it is unknown."""
    if total is None:
        return None
    return (total - (before or 0)) / span


def most(one: int | None, other: int | None) -> int | None:
    """Returns the larger of two numbers; None if both are unknown."""
    return max((value for value in (one, other) if value is not None), default=None)
