"""The notice that a run ends, in the programs of the replicas."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any

from torchx import settings

INTERRUPTED = 75
"""Exit code of a program that has saved its state because its run ends: ``EX_TEMPFAIL``, "try again"."""

INTERVAL = 2.0
"""Seconds between two agreements of the ranks, if the notice is long enough."""

_GROWTH = 8
"""Factor by which the number of steps between two agreements grows at most."""


class Notice:
    """Reports to all ranks at the same step that the run ends.

    Each call of :meth:`check` is a step. The ranks agree by an ``all_reduce`` of the process group, in every
    step of slow programs, and every two seconds in fast ones: the number of steps until the next agreement
    is part of each agreement, so all ranks make it at the same step, whatever their clocks show.
    """

    def __init__(self) -> None:
        notice, _, name = os.environ.get(settings.TORCHX_NOTICE, "").partition(":")
        ends_at = os.environ.get(settings.TORCHX_ENDS_AT, "")
        self._at: float | None = None
        self._interval = INTERVAL
        with contextlib.suppress(ValueError):
            seconds = float(notice) if notice else 0.0
            if ends_at and notice:
                self._at = float(ends_at) - seconds
            else:
                self._at = None
            if notice:
                self._interval = min(INTERVAL, seconds / 10)
            else:
                self._interval = INTERVAL
        self._signalled = self._agreed = False
        self._steps, self._left, self._since = 1, 1, time.monotonic()
        self._handle("SIGTERM", f"SIG{name or 'USR1'}")

    def _handle(self, *names: str) -> None:
        """Handles the signals that would end the program."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.Signals[name] for name in names if name in signal.Signals.__members__):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: object) -> None:
        self._signalled = True

    def check(self) -> bool:
        """Returns True from the step on at which all ranks know that the run ends."""
        if self._agreed:
            return True
        dist: Any = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
            self._agreed = self._ends()
            return self._agreed
        self._left -= 1
        if self._left <= 0:
            self._agree(dist)
        return self._agreed

    def _ends(self) -> bool:
        return self._signalled or (self._at is not None and time.time() >= self._at)

    def _agree(self, dist: Any) -> None:
        torch: Any = sys.modules["torch"]
        now = time.monotonic()
        step = (now - self._since) / self._steps
        device = "cpu"
        if dist.get_backend() == "nccl":
            device = "cuda"
        values = torch.tensor([float(self._ends()), step], dtype=torch.float64, device=device)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        ends, slowest = values.tolist()
        self._agreed = ends > 0
        self._steps = max(1, min(int(self._interval / max(slowest, 1e-9)), self._steps * _GROWTH))
        self._left, self._since = self._steps, now


_notice: Notice | None = None


def ending() -> bool:
    """Returns True if this run ends soon: save a checkpoint, then end the program.

    The run ends by a time limit (``torchx run --time-limit 24h --warn-before 5m``), by a preemption or
    because it is cancelled. Call it once in each step, on all ranks: it returns True on all of them at the
    same step. It takes about a microsecond, except for an ``all_reduce`` of two numbers every two seconds.
    Without a process group it is about this process alone.

    The exit code says whether the work is done: 0 if it is, and another one, such as
    :data:`INTERRUPTED`, if the application has to be started again (``--requeue time-limit``)::

        for step in range(first, last):
            train(step)
            if ending():
                save(step)
                sys.exit(INTERRUPTED)

    The first call handles SIGTERM and the signal of the notice, unless the program handles them itself.

    >>> ending()
    False
    """
    global _notice
    if _notice is None:
        _notice = Notice()
    return _notice.check()
