"""The events of a job: one line of JSON for each thing that happened, only ever appended."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx.machine import files

LARGEST = 1 << 28
"""Bytes of all events of a job; some million of them."""

LONGEST_LINE = 1 << 16
"""Bytes of an event; a longer one is damaged."""


class Clock:
    """A clock that starts at the time of day and then runs evenly, whatever is done to the machine's clock.

    Times of one job are taken from one such clock, so that durations are right and order is true. It runs
    on while the machine sleeps.

    Args:
        not_before: it starts no earlier than this, seconds since the epoch: the machine's clock may have
            been put back since.
    """

    def __init__(self, not_before: float = 0.0) -> None:
        now = max(time.time_ns(), int(not_before * 1e9))
        self._offset = now - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset

    def now(self) -> float:
        """Returns seconds since the epoch, to the microsecond."""
        return round(self.ns() / 1e9, 6)


class EventLog:
    """Appends events; each is one write, so that a reader never sees a part of a part.

    Args:
        path: the file; made when it is not there.
        clock: where the times come from.
        reserve: a file that is there to be given up when the disk is full: its room goes to the events.
    """

    def __init__(self, path: Path, clock: Clock, reserve: Path | None = None) -> None:
        self._clock = clock
        self._reserve = reserve
        self._descriptor = files.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            # whoever wrote last was killed at it, and that must cost no more than its own line
            os.write(self._descriptor, b"\n")

    def add(self, event: str, **facts: Any) -> None:
        """Appends one event, with the present time unless its facts tell another.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        line = json.dumps({"t": self._clock.now(), "e": event, **facts}, separators=(",", ":"))
        data = line.encode() + b"\n"
        try:
            self._write(data)
        except OSError:
            if self._reserve is None:
                raise
            self._reserve.unlink(missing_ok=True)
            self._reserve = None
            self._write(b"\n" + data)  # a part of it may be there: what follows is a line of its own

    def _write(self, data: bytes) -> None:
        if os.write(self._descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the events of a job in order; a line that is damaged or half written is passed over.

    Raises:
        OSError: it is not a regular file of this user, is larger than :data:`LARGEST`, or cannot be read.
    """
    try:
        descriptor = files.open_file(path)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > LARGEST:
            raise OSError(errno.EFBIG, f"it is larger than {LARGEST >> 20} MB", str(path))
        while line := file.readline(LONGEST_LINE):  # of a longer one the parts are damaged lines
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("e"), str):
                yield event
