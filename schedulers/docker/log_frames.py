"""The form in which an engine sends logs: frames of stream, time and a line or a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from torchx.schedulers.docker.containers import Container
from torchx.scheduling.logs import LogQuery

HEAD = 8
TIME_LENGTH = 31
"""Characters of a time in a log, in UTC with nine digits of the second, and the blank behind it."""
LONGEST_LINE = 1 << 26
"""Bytes after which a line that has no end yet is handed on in parts."""

Line = tuple[bytes, str, int, bytes]
"""A time as the engine writes it (in the order of time is in the order of text), the container's id, 1 for
stdout and 2 for stderr, and the line with its end."""

_seconds: dict[bytes, float] = {}


class Frames:
    """Takes the log of one container as it comes, and gives lines.

    Args:
        container: whose log it is.

    Attributes:
        last: the time of the last line that was noted.
        held_back: bytes that have come and were not taken yet.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self.last = b""
        self.held_back = b""
        self._same = 0  # lines that bear this time
        self._skip = 0
        self._rest = b""
        self._parts: dict[int, tuple[bytes, list[bytes], int]] = {}  # time, parts and size of a line

    def feed(self, data: bytes) -> list[Line]:
        """Takes some bytes and returns the lines that they complete."""
        data = self._rest + data if self._rest else data
        lines: list[Line] = []
        at, end, name, parts = 0, len(data), self.container.id, self._parts
        add = lines.append
        while at + HEAD <= end:
            stop = at + HEAD + int.from_bytes(data[at + 4 : at + HEAD], "big")
            if stop > end:
                break
            stream = data[at]
            body = at + HEAD + TIME_LENGTH
            line = data[body:stop]
            time = data[at + HEAD : body]
            if time[29:] != b"Z ":
                time, line = _put_in_form(data[at + HEAD : stop])
            at = stop
            held: list[bytes] = []
            size = len(line)
            if parts and stream in parts:
                time, held, before = parts.pop(stream)
                size += before
            if line.endswith(b"\n") or size > LONGEST_LINE:
                add((time, name, stream, b"".join([*held, line]) if held else line))
            else:
                held.append(line)
                parts[stream] = (time, held, size)
        self._rest = data[at:]
        return self._without_known(lines) if self._skip else lines

    def rest(self) -> list[Line]:
        """Returns the last lines, which have no end."""
        parts, self._parts, self._rest = self._parts, {}, b""
        lines = sorted(
            (time, self.container.id, stream, b"".join(held)) for stream, (time, held, _) in parts.items()
        )
        return self._without_known(lines) if self._skip else lines

    def note(self, line: Line) -> None:
        """Notes that a line was told."""
        self._same = self._same + 1 if line[0] == self.last else 1
        self.last = line[0]

    def resume(self) -> None:
        """Prepares for the log being read again from the time of the last line on."""
        self._skip = self._same if self.last else 0
        self._rest, self._parts = b"", {}

    def _without_known(self, lines: list[Line]) -> list[Line]:
        fresh = []
        for line in lines:
            if self._skip and line[0] == self.last:
                self._skip -= 1
            else:
                self._skip = 0 if line[0] > self.last else self._skip
                fresh.append(line)
        return fresh


def _put_in_form(text: bytes) -> tuple[bytes, bytes]:
    """Returns the time and the line of an engine that writes times in another form, as Podman does.

    >>> _put_in_form(b"2026-05-01T14:00:00.25+02:00 a line")
    (b'2026-05-01T12:00:00.250000000Z ', b'a line')
    """
    time, _, line = text.partition(b" ")
    found = re.fullmatch(rb"(.{19})(?:\.(\d{1,9}))?\d*(?:Z|([+-])(\d\d):(\d\d))", time)
    if found is None:
        return b"1970-01-01T00:00:00.000000000Z ", text
    moment, digits, sign, hours, minutes = found.groups()
    if sign is not None:
        off = timedelta(hours=int(hours), minutes=int(minutes))
        local = datetime.fromisoformat(moment.decode())
        moment = (local - off if sign == b"+" else local + off).isoformat().encode()
    return b"%b.%bZ " % (moment, (digits or b"").ljust(9, b"0")), line


def seconds_of(time: bytes) -> float:
    """Returns a time of a log in seconds since the epoch.

    >>> seconds_of(b"1970-01-01T00:00:01.500000000Z ")
    1.5
    """
    whole = time[:19]
    found = _seconds.get(whole)
    if found is None:
        if len(_seconds) > 1 << 16:
            _seconds.clear()
        moment = datetime.fromisoformat(whole.decode()).replace(tzinfo=timezone.utc)
        found = _seconds[whole] = moment.timestamp()
    return found + int(time[20:29]) / 1e9


def stamp(time: bytes) -> str:
    """Returns a time of a log as the engine takes it, seconds since the epoch to the last digit.

    >>> stamp(b"1970-01-01T00:00:01.500000001Z ")
    '1.500000001'
    """
    return f"{int(seconds_of(time[:20] + b'000000000Z'))}.{time[20:29].decode()}"


def matching(query: LogQuery) -> Callable[[Line], bool] | None:
    """Returns what tells whether a line is wanted by its text and time; None when all are."""
    tests: list[Callable[[Line], bool]] = []
    if query.regex is not None:
        search = re.compile(query.regex).search
        tests.append(lambda line: bool(search(line[3].rstrip(b"\n").decode("utf-8", "surrogateescape"))))
    if query.until is not None:
        until = query.until.timestamp()
        tests.append(lambda line: seconds_of(line[0]) < until)
    if query.since is not None:
        since = query.since.timestamp()
        tests.append(lambda line: seconds_of(line[0]) >= since)
    if not tests:
        return None
    return lambda line: all(test(line) for test in tests)
