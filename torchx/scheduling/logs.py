"""Log lines as they travel from an engine to a reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum


class Stream(str, Enum):
    """Which output of a replica: one of its two streams, or both in their true order."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class LogQuery:
    """Which log lines of an application are wanted.

    Attributes:
        replicas: role name to replica ids; a role without ids (empty set) means all its replicas;
            an empty mapping means all roles.
        regex: only lines in which this pattern is found (``re.search``).
        since: only lines written at or after this time.
        until: only lines written before this time.
        tail: only the last N lines of what matches; None for all.
        follow: go on until the application has ended.
        stream: which output.
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
    """Some lines of one output of one replica, together since they came together.

    Attributes:
        role: name of the role.
        replica: id of the replica within its role.
        attempt: which attempt of the replica wrote it, from 1.
        stream: stdout or stderr; combined where the engine does not tell them apart.
        time: when the first byte of it was read, seconds since the epoch; 0.0 when not known.
        data: whole lines with their line ends; the last line of an output may lack its own.
    """

    role: str
    replica: int
    attempt: int
    stream: Stream
    time: float
    data: bytes


def whole_characters(data: bytes) -> int:
    """Returns how many of the bytes are whole characters of UTF-8: at the end one may be cut in two.

    >>> whole_characters("né".encode()), whole_characters("né".encode()[:-1]), whole_characters(b"\\xff")
    (3, 1, 1)
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character tells how many it has
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF5 else 1
            return len(data) - back if needed > back else len(data)
        if byte < 0x80:
            break
    return len(data)


def lines_of(chunks: Iterable[LogChunk]) -> Iterator[str]:
    """Yields the lines of one replica, each with its line end; a last one that has none comes without."""
    held = b""
    for chunk in chunks:
        *whole, held = (held + chunk.data).split(b"\n")
        yield from (line.decode("utf-8", "replace") + "\n" for line in whole)
    if held:
        yield held.decode("utf-8", "replace")
