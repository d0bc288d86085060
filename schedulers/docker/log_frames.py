"""Parses the logs of an engine: frames with a stream, a time and a line or a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from torchx.schedulers.docker.containers import Container
from torchx.scheduling.logs import LogQuery

HEAD = 8
TIME_LENGTH = 31
"""Length of a timestamp in a log, in UTC with nanoseconds, and the space after it."""
LONGEST_LINE = 1 << 26
"""Maximum bytes of a line; a longer line is returned in parts."""

Line = tuple[bytes, str, int, bytes]
"""The engine's timestamp, which sorts as text, the id of the container, 1 for stdout or 2 for stderr, and the
line with its line end."""

_seconds: dict[bytes, float] = {}


class Frames:
    """Splits the log of one container into lines.

    Args:
        container: the container.

    Attributes:
        last: the time of the last line passed to :meth:`note`.
        held_back: bytes received but not parsed yet.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self.last = b""
        self.held_back = b""
        self._same = 0  # number of lines with this time
        self._begun = b""  # the last line, if it had no end yet: it may continue
        self._stream = 0  # its stream
        self._skip = 0
        self._rest = b""
        self._parts: dict[int, tuple[bytes, list[bytes], int]] = {}  # time, parts and size of a line

    def feed(self, data: bytes) -> list[Line]:
        """Parses some bytes and returns the lines that they complete."""
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
                time, line = _normalized(data[at + HEAD : stop])
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
        return self._skip_known(lines) if self._skip else lines

    def rest(self) -> list[Line]:
        """Returns the last lines, which have no line end."""
        parts, self._parts, self._rest = self._parts, {}, b""
        lines = sorted(
            (time, self.container.id, stream, b"".join(held)) for stream, (time, held, _) in parts.items()
        )
        return self._skip_known(lines) if self._skip else lines

    def note(self, line: Line) -> None:
        """Records that a line was returned to the caller."""
        if self._begun and (line[0], line[2]) == (self.last, self._stream):  # the same line goes on
            self._begun = b"" if line[3].endswith(b"\n") else self._begun + line[3]
            return
        self._same = self._same + 1 if line[0] == self.last else 1
        self.last = line[0]
        self._begun, self._stream = b"" if line[3].endswith(b"\n") else line[3], line[2]

    def resume(self) -> None:
        """Prepares for reading the log again, from the time of the last line."""
        self._skip = self._same if self.last else 0
        self._rest, self._parts = b"", {}

    def _skip_known(self, lines: list[Line]) -> list[Line]:
        fresh = []
        for line in lines:
            if self._skip and line[0] == self.last:
                self._skip -= 1
                if not self._skip and self._begun and line[3].startswith(self._begun):
                    rest = line[3][len(self._begun) :]  # written since, as by a container that was restarted
                    fresh += [(*line[:3], rest)] if rest else []
            else:
                self._skip = 0 if line[0] > self.last else self._skip
                fresh.append(line)
        return fresh


def _normalized(text: bytes) -> tuple[bytes, bytes]:
    """Returns the time in Docker's format and the line; Podman formats times differently.

    >>> _normalized(b"2026-05-01T14:00:00.25+02:00 a line")
    (b'2026-05-01T12:00:00.250000000Z ', b'a line')
    """
    time, _, line = text.partition(b" ")
    match = re.fullmatch(rb"(.{19})(?:\.(\d{1,9}))?\d*(?:Z|([+-])(\d\d):(\d\d))", time)
    if match is None:
        return b"1970-01-01T00:00:00.000000000Z ", text
    moment, digits, sign, hours, minutes = match.groups()
    if sign is not None:
        off = timedelta(hours=int(hours), minutes=int(minutes))
        local = datetime.fromisoformat(moment.decode())
        moment = (local - off if sign == b"+" else local + off).isoformat().encode()
    return b"%b.%bZ " % (moment, (digits or b"").ljust(9, b"0")), line


def seconds_of(time: bytes) -> float:
    """Returns a timestamp of a log in seconds since the epoch.

    >>> seconds_of(b"1970-01-01T00:00:01.500000000Z ")
    1.5
    """
    whole = time[:19]
    seconds = _seconds.get(whole)
    if seconds is None:
        if len(_seconds) > 1 << 16:
            _seconds.clear()
        moment = datetime.fromisoformat(whole.decode()).replace(tzinfo=timezone.utc)
        seconds = _seconds[whole] = moment.timestamp()
    return seconds + int(time[20:29]) / 1e9


def stamp(time: bytes) -> str:
    """Returns a timestamp of a log as the engine accepts it, in seconds since the epoch with all digits.

    >>> stamp(b"1970-01-01T00:00:01.500000001Z ")
    '1.500000001'
    """
    return f"{int(seconds_of(time[:20] + b'000000000Z'))}.{time[20:29].decode()}"


def line_filter(query: LogQuery) -> Callable[[Line], bool] | None:
    """Returns a filter of lines by text and time, or None if the query has neither."""
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
