"""Log lines and queries for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum


class Stream(str, Enum):
    """An output stream of a replica, or both streams in the order they were written."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class LogQuery:
    """A filter of an application's log lines.

    Attributes:
        replicas: replica ids by role name; an empty set selects all replicas of a role, an empty mapping
            all roles.
        regex: only lines in which this pattern is found (``re.search``).
        since: only lines written at or after this time.
        until: only lines written before this time.
        tail: only the last N matching lines; None for all.
        follow: continue until the application has ended.
        stream: the output stream.
    """

    replicas: Mapping[str, frozenset[int]] = field(default_factory=dict)
    regex: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tail: int | None = None
    follow: bool = False
    stream: Stream = Stream.COMBINED


@dataclass(frozen=True)
class LogChunk:
    """Consecutive lines of one stream of one replica.

    Attributes:
        role: name of the role.
        replica: id of the replica within its role.
        attempt: number of the attempt that wrote it, from 1.
        stream: stdout or stderr; combined if the engine does not separate them.
        time: when its first byte was read, in seconds since the epoch; 0.0 if unknown.
        data: whole lines with their line ends; the last line of a stream may lack its own.
    """

    role: str
    replica: int
    attempt: int
    stream: Stream
    time: float
    data: bytes


def whole_characters(data: bytes) -> int:
    """Returns the number of bytes that form whole UTF-8 characters: the last may be incomplete.

    >>> whole_characters("né".encode()), whole_characters("né".encode()[:-1]), whole_characters(b"\\xff")
    (3, 1, 1)
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character determines its length
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF5 else 1
            return len(data) - back if needed > back else len(data)
        if byte < 0x80:
            break
    return len(data)


def lines_of(chunks: Iterable[LogChunk]) -> Iterator[str]:
    """Yields the lines of one replica, each with its line end, if it has one."""
    held = b""
    for chunk in chunks:
        *whole, held = (held + chunk.data).split(b"\n")
        yield from (line.decode("utf-8", "replace") + "\n" for line in whole)
    if held:
        yield held.decode("utf-8", "replace")
