"""Turn the totals that processes have used since their start into samples."""

from __future__ import annotations

from torchx.scheduling.measurement import Sample


class Use:
    """Resources that the processes of one replica use; the totals since their start, and their memory now."""

    __slots__ = ("cpu", "memory", "read", "write")

    def __init__(
        self, cpu: float = 0.0, memory: int = 0, read: int | None = None, write: int | None = None
    ) -> None:
        self.cpu = cpu  # seconds
        self.memory = memory
        self.read = read
        self.write = write


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
        self.before = Use()
        self.received = 0

    def sample(
        self,
        now: float,
        use: Use,
        gpu: tuple[float | None, int | None] = (None, None),
        received: int | None = None,
    ) -> Sample:
        """Returns the sample of the time since the last one.

        Args:
            now: the time.
            use: its resources now.
            gpu: the utilisation of its GPUs now, and their memory in use.
            received: bytes of output since its start; None if unknown.
        """
        before, span = self.before, now - self.seen_at
        # a process that ends between its parent and this pass may take its counts with it
        use.cpu = max(use.cpu, before.cpu)
        use.read, use.write = most(use.read, before.read), most(use.write, before.write)
        if received is None:
            output = None
        else:
            output = (received - self.received) / span
        self.before, self.seen_at, self.received = use, now, received or 0
        return Sample(
            now,
            span,
            (use.cpu - before.cpu) / span,
            use.memory or None,  # 0: its processes have just ended
            *gpu,
            output,
            None if use.read is None else (use.read - (before.read or 0)) / span,
            None if use.write is None else (use.write - (before.write or 0)) / span,
        )


def most(one: int | None, other: int | None) -> int | None:
    """Returns the larger of two numbers; None if both are unknown."""
    return max((value for value in (one, other) if value is not None), default=None)
