"""Parses the logs of an engine: frames with a stream, a time and a line or a part of one."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.shared.logs import Position

HEAD = 8
TIME_LENGTH = 31
"""Length of a timestamp in a log, in UTC with nanoseconds, and the space after it."""
LONGEST_LINE = 1 << 26
"""Maximum bytes of a line; a longer line is returned in parts."""

Source = tuple[str, int]
"""The id of a container, and 1 for stdout or 2 for stderr."""

Line = tuple[bytes, Source, bytes]
"""The engine's timestamp, which sorts as text, the source, and the line with its line end."""

_seconds: dict[bytes, float] = {}


def split(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Splits output without timestamps into pieces, each with its stream, and the rest.

    >>> split(bytes([1, 0, 0, 0, 0, 0, 0, 2]) + b"hi" + bytes([2]))
    ([(1, b'hi')], b'\\x02')
    """
    pieces: list[tuple[int, bytes]] = []
    at = 0
    while at + HEAD <= len(data):
        stop = at + HEAD + int.from_bytes(data[at + 4 : at + HEAD], "big")
        if len(data) < stop:
            break
        pieces.append((data[at], data[at + HEAD : stop]))
        at = stop
    return pieces, data[at:]


class Frames:
    """Splits the log of one container into lines.

    Args:
        container: the container.

    Attributes:
        position: the position after the last line that was returned to the caller.
        held_back: bytes received but not parsed yet.
    """

    def __init__(self, container: Container) -> None:
        self.container = container
        self.position: Position[bytes] = Position()
        self.held_back = b""
        self._rest = b""
        self._parts: dict[int, tuple[bytes, list[bytes], int]] = {}  # time, parts and size of a line
        self._sources = [(container.id, stream) for stream in range(256)]

    def feed(self, data: bytes) -> list[Line]:
        """Parses some bytes and returns the lines that they complete."""
        data = self._rest + data if self._rest else data
        lines: list[Line] = []
        at, end, sources, parts = 0, len(data), self._sources, self._parts
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
                time, line = normalized(data[at + HEAD : stop])
            at = stop
            held: list[bytes] = []
            size = len(line)
            if parts and stream in parts:
                time, held, before = parts.pop(stream)
                size += before
            if line.endswith(b"\n") or size > LONGEST_LINE:
                add((time, sources[stream], b"".join([*held, line]) if held else line))
            else:
                held.append(line)
                parts[stream] = (time, held, size)
        self._rest = data[at:]
        return self._fresh(lines)

    def rest(self) -> list[Line]:
        """Returns the last lines, which have no line end."""
        parts, self._parts, self._rest = self._parts, {}, b""
        return self._fresh(
            sorted((time, self._sources[stream], b"".join(held)) for stream, (time, held, _) in parts.items())
        )

    def resume(self) -> None:
        """Prepares for reading the log again, from the time of the last line."""
        self.position.resume()
        self._rest, self._parts = b"", {}

    def _fresh(self, lines: list[Line]) -> list[Line]:
        if not self.position.is_resuming:
            return lines
        return [line for each in lines if (line := self.position.fresh(each)) is not None]


def normalized(text: bytes) -> tuple[bytes, bytes]:
    """Returns the time in Docker's format and the line; Podman formats times differently.

    >>> normalized(b"2026-05-01T14:00:00.25+02:00 a line")
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


def time_of(moment: datetime) -> bytes:
    """Returns a moment in the format of the timestamps of a log.

    >>> time_of(datetime(2026, 5, 1, 14, 0, 0, 250, timezone(timedelta(hours=2))))
    b'2026-05-01T12:00:00.000250000Z '
    """
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f000Z ").encode()
