"""Detects that the replicas of a job make no progress: neither output nor heartbeats.

Nothing happens while there is progress: the supervisor wakes up once per limit to check, since heartbeats are
written to shared memory, and output is read by it anyway.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import struct
import time
from pathlib import Path
from typing import NamedTuple

from torchx import settings
from torchx.machine import files
from torchx.printable import brief
from torchx.scheduling.patterns import SearchTooLongError, any_matches
from torchx.scheduling.stalls import LONGEST_LINE, SLOT_SIZE, StallRule

SLOT = struct.Struct("=qq")
"""A heartbeat: its time by ``time.monotonic_ns()``, and the step; see ``torchx.distributed.beat``."""
assert SLOT.size == SLOT_SIZE

RESUMED_WITHIN = 1.0
"""Seconds until a heartbeat after a stall is noticed."""


class Stall(NamedTuple):
    """A stall that has just been detected.

    Attributes:
        replicas: the ordinals of the replicas that make no progress.
        seconds: the time since the last progress.
        step: the last step that was reported; None if none was.
    """

    replicas: tuple[int, ...]
    seconds: float
    step: int | None


class StallWatch:
    """The progress of the replicas of a job.

    A replica that has reported progress by heartbeats or matching lines has a clock of its own. The others
    share one, since often one replica prints for all.

    Args:
        rule: the rule.
        path: the file for the heartbeats of all replicas, 16 bytes each.
        count: the number of replicas.
    """

    def __init__(self, rule: StallRule, path: Path, count: int) -> None:
        self._rule = rule
        self._path = path
        self._pattern = re.compile(rule.progress.encode()) if rule.progress else None
        descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(descriptor, SLOT.size * max(count, 1))
            self._slots = mmap.mmap(descriptor, SLOT.size * max(count, 1))
        finally:
            os.close(descriptor)
        self._last: dict[int, float] = {}  # running replicas: the time of the last output, or of the start
        self._reported: set[int] = set()  # those with a matching line
        self._rest: dict[tuple[int, int], bytes] = {}
        self._shared = time.monotonic()
        self._stalled: dict[int, float] = {}  # ordinals: the time of the last progress
        self._checked_until = 0.0

    def variables(self, ordinal: int) -> dict[str, str]:
        """Returns the variables for a replica that is about to start."""
        return {settings.TORCHX_HEARTBEAT: f"{ordinal * SLOT.size}:{self._path}"}

    def started(self, ordinal: int, since: float | None = None) -> None:
        """Handles the start of an attempt: its clock begins again.

        Args:
            ordinal: the replica.
            since: the time of the start by ``time.monotonic()``; heartbeats since then are kept.
        """
        if since is None or SLOT.unpack_from(self._slots, ordinal * SLOT.size)[0] < since * 1e9:
            SLOT.pack_into(self._slots, ordinal * SLOT.size, 0, -1)
        self._reported.discard(ordinal)
        self._last[ordinal] = self._shared = time.monotonic()
        self._rest = {key: rest for key, rest in self._rest.items() if key[0] != ordinal}
        self._checked_until = 0.0

    def ended(self, ordinal: int) -> None:
        """Handles the end of an attempt, which is progress for the others."""
        self._last.pop(ordinal, None)
        self._shared = time.monotonic()
        self._checked_until = 0.0

    def output(self, ordinal: int, stream: int, data: bytes, at: float | None = None) -> None:
        """Handles output of a replica.

        Args:
            ordinal: the replica.
            stream: 1 or 2.
            data: the output.
            at: its time by ``time.monotonic()`` (default: now).
        """
        if self._stalled:
            self._checked_until = 0.0
        at = time.monotonic() if at is None else at
        if self._pattern is None:
            self._progress(ordinal, at)
            return
        text = self._rest.pop((ordinal, stream), b"") + data
        *lines, rest = text.split(b"\n")
        self._rest[ordinal, stream] = rest[-LONGEST_LINE:]
        if self._matches(lines):
            self._progress(ordinal, at)
            self._reported.add(ordinal)

    def _progress(self, ordinal: int, at: float) -> None:
        if ordinal in self._last:
            self._last[ordinal] = max(at, self._last[ordinal])
        self._shared = max(at, self._shared)

    def _matches(self, lines: list[bytes]) -> bool:
        """Returns True if a line matches; also if that takes too long, so that nothing healthy is ended."""
        assert self._pattern is not None
        try:
            return any_matches(self._pattern.search, [line[:LONGEST_LINE] for line in lines])
        except SearchTooLongError:
            self._pattern = None  # from now on, all output is progress
            return True

    def refresh(self) -> None:
        """Makes the next check find heartbeats since the last one."""
        self._checked_until = 0.0

    @property
    def stalled(self) -> tuple[int, ...]:
        """The replicas that made no progress at the last check."""
        return tuple(sorted(self._stalled))

    def pause(self) -> float | None:
        """Returns the seconds until the next check, None if nothing runs."""
        if not self._last:
            return None
        return max(self._checked_until - time.monotonic(), 0.0)

    def check(self) -> Stall | None:
        """Returns a stall that begins now; the next one needs progress first."""
        now = time.monotonic()
        if not self._last or now < self._checked_until:
            return None
        beats = {n: at for n in self._last if (at := self._beat(n)[0])}
        shared = max((self._shared, *beats.values()))
        waits_for_first = self._pattern is not None and not self._reported and not beats
        oldest: dict[int, float] = {}
        for ordinal, last in self._last.items():
            if ordinal in beats or ordinal in self._reported:
                oldest[ordinal] = max(last, beats.get(ordinal, 0.0))
            elif not waits_for_first:
                oldest[ordinal] = shared
        stalled = {n: at for n, at in oldest.items() if now - at >= self._rule.limit}
        left = [at + self._rule.limit - now for n, at in oldest.items() if n not in stalled]
        # a heartbeat of a stalled replica wakes no process
        self._checked_until = now + min([RESUMED_WITHIN if stalled else self._rule.limit, *left])
        new = sorted(n for n, at in stalled.items() if self._stalled.get(n) != at)
        self._stalled = stalled
        if not new:
            return None
        steps = [step for n in new if (step := self._beat(n)[1]) is not None]
        return Stall(tuple(new), now - min(stalled[n] for n in new), max(steps, default=None))

    def _beat(self, ordinal: int) -> tuple[float, int | None]:
        at, step = SLOT.unpack_from(self._slots, ordinal * SLOT.size)
        return max(min(at / 1e9, time.monotonic()), 0.0), step if at and step >= 0 else None

    def close(self) -> None:
        """Releases the shared memory."""
        self._slots.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def describe(stall: Stall, lacks: str) -> str:
    """Returns the message about a stall; ``lacks`` is output or progress.

    >>> describe(Stall((1,), 600.0, 4183), "output")
    'no output for 10 min (step 4,183)'
    """
    if stall.step is None:
        step = ""
    else:
        step = f" (step {stall.step:,})"
    return f"no {lacks} for {brief(stall.seconds)}{step}"
