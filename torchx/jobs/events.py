"""The event log of a job: one JSON object per line, append-only."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx.json_limits import Object
from torchx.machine import files

LARGEST = 1 << 28
"""Maximum bytes of all events of a job, enough for some million events."""

BLOCK = 1 << 20
"""Bytes to read at a time while following."""

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode

LONGEST_LINE = 1 << 16
"""Maximum bytes of an event; a longer one is treated as damaged."""


class Clock:
    """A clock that starts at the time of day and then ignores changes of the system clock.

    All times of a job come from one such clock, so that durations and order are right. It includes time
    during which the machine is suspended.

    Args:
        not_before: earliest start, in seconds since the epoch, in case the system clock was set back.
        step: seconds by which the system clock was set forward since another clock began, which this one
            continues.
    """

    def __init__(self, not_before: float = 0.0, step: float = 0.0) -> None:
        now = max(time.time_ns() - int(step * 1e9), int(not_before * 1e9))
        self._offset = now - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset

    def now(self) -> float:
        """Returns seconds since the epoch, to the microsecond."""
        return round(self.ns() / 1e9, 6)


class EventLog:
    """Appends events; each is one write, so that readers see whole events.

    Args:
        path: the file, created if missing.
        clock: the source of times.
        reserve: a file to delete if the disk is full, to free space for events.
    """

    def __init__(self, path: Path, clock: Clock, reserve: Path | None = None) -> None:
        self._clock = clock
        self._reserve = reserve
        self._descriptor = files.open_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                # the last writer was killed while writing: end its line
                os.write(self._descriptor, b"\n")
        except OSError:
            self.close()
            raise

    def add(self, event: str, **facts: Any) -> None:
        """Appends one event; its time is the current time unless `facts` has another.

        Raises:
            OSError: the disk is full, or the file cannot be written.
        """
        data = _ENCODE({"t": self._clock.now(), "e": event, **facts}).encode() + b"\n"
        try:
            self._write(data)
        except OSError:
            if self._reserve is None:
                raise
            self._reserve.unlink(missing_ok=True)
            self._reserve = None
            self._write(b"\n" + data)  # a part of it may have been written: start a new line

    def _write(self, data: bytes) -> None:
        if os.write(self._descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)


def read_events(path: Path) -> Iterator[Object]:
    """Yields the events of a job in order; skips damaged and incomplete lines.

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
        while line := file.readline(LONGEST_LINE):  # a longer line is read as several damaged ones
            event = parse_event(line)
            if event is not None:
                yield event


def follow_events(path: Path) -> Iterator[Object | None]:
    """Yields the events of a job in order, and None at the current end of its log, until it is removed.

    Raises:
        OSError: it is not a regular file of this user, or cannot be read.
    """
    while True:
        try:
            descriptor = files.open_file(path)
            break
        except FileNotFoundError:
            if not path.parent.exists():
                return
            yield None
    with open(descriptor, "rb", buffering=0) as file:
        rest = b""
        while True:
            data = file.read(BLOCK)
            *lines, rest = (rest + data).split(b"\n")
            for event in map(parse_event, lines):
                if event is not None:
                    yield event
            if len(rest) > LONGEST_LINE:  # damaged
                rest = b""
            if not data:
                if not os.fstat(descriptor).st_nlink:
                    return
                yield None


def parse_event(line: bytes) -> Object | None:
    """Parses a line of an event log; returns None if it is damaged or incomplete."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(event, dict) and isinstance(event.get("e"), str):
        return event
    return None
