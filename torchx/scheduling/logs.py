"""Log lines and queries for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from torchx.errors import UsageError
from torchx.scheduling.patterns import SearchTooLongError, in_time
from torchx.specs.status import Member

LONGEST_LINE = 1 << 20
"""Bytes of a line from which on it is treated in parts."""


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

    def selects(self, role: str, replica: int) -> bool:
        """Returns True if the query selects a replica.

        >>> LogQuery({"a": frozenset({1})}).selects("a", 1), LogQuery({"a": frozenset()}).selects("b", 0)
        (True, False)
        """
        if not self.replicas:
            return True
        ids = self.replicas.get(role)
        return ids is not None and (not ids or replica in ids)


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
        if byte >= 0xF5 or byte < 0x80:
            break
        if byte >= 0xC0:  # the first byte of a character determines its length
            needed = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            if needed > back:
                return len(data) - back
            return len(data)
    return len(data)


def text_of(data: bytes) -> str:
    """Returns log output as text; a pattern of a query is searched in this text, in which users read it.

    >>> text_of(b"caf\\xe9 \\xc3\\xa9")
    'caf\ufffd é'
    """
    return data.decode("utf-8", "replace")


def too_slow(pattern: str) -> UsageError:
    """Returns the error about a pattern whose search takes too long."""
    return UsageError(
        f"the search for `{pattern}` takes too long on a line of the log",
        hint="nested repetitions such as (a+)+ try all combinations: use one, as in a+",
    )


def finder(regex: str) -> Callable[[str], bool]:
    """Returns a function that returns True if a pattern is found in a line.

    Raises:
        UsageError: raised by the function: the search takes too long.
    """
    pattern = re.compile(regex)

    def found(line: str) -> bool:
        try:
            return in_time(("line", pattern), lambda text: pattern.search(text) is not None, line)
        except SearchTooLongError:
            raise too_slow(regex) from None

    return found


def matching(data: bytes, pattern: re.Pattern[str]) -> bytes:
    r"""Returns the lines that match a pattern, with their bytes unchanged.

    Raises:
        UsageError: the search takes too long.

    >>> matching(b"a\nb\xff\nb", re.compile("b"))
    b'b\xff\nb'
    """
    try:
        return in_time(pattern, lambda lines: _matching(lines, pattern.search), data)
    except SearchTooLongError:
        raise too_slow(pattern.pattern) from None


def _matching(data: bytes, search: Callable[[str], object]) -> bytes:
    text = text_of(data)
    if "\ufffd" in text:  # perhaps invalid bytes, which the text does not have
        return b"".join(line for line in _with_ends(data) if search(text_of(line.removesuffix(b"\n"))))
    lines = text.split("\n")
    last = lines.pop()
    kept = [line + "\n" for line in lines if search(line)]
    if last and search(last):
        kept.append(last)
    return "".join(kept).encode()


def _with_ends(data: bytes) -> Iterator[bytes]:
    *lines, last = data.split(b"\n")
    yield from (line + b"\n" for line in lines)
    if last:
        yield last


def whole_lines(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    """Yields the same log without parts of lines: those that a followed log has before the line ends.

    Lines of more than :data:`LONGEST_LINE` remain in parts.
    """
    held: dict[tuple[str, int, Stream], tuple[LogChunk, bytearray]] = {}
    attempts: dict[Member, int] = {}
    for chunk in chunks:
        replica = chunk.role, chunk.replica
        if attempts.get(replica) != chunk.attempt:
            attempts[replica] = chunk.attempt
            unfinished = (held.pop((*replica, stream), None) for stream in Stream)
            yield from (replace(first, data=bytes(line)) for first, line in filter(None, unfinished))
        source = *replica, chunk.stream
        first, line = held.pop(source, (chunk, bytearray()))
        end = chunk.data.rfind(b"\n") + 1
        if not end and len(line) + len(chunk.data) >= LONGEST_LINE:
            end = whole_characters(chunk.data)
        if end:
            yield replace(first, data=bytes(line) + chunk.data[:end])
            first, line = chunk, bytearray()
        line += chunk.data[end:]
        if line:
            held[source] = first, line
    yield from (replace(first, data=bytes(line)) for first, line in held.values())


def lines_of(chunks: Iterable[LogChunk]) -> Iterator[str]:
    """Yields the lines of one replica, each with its line end, if it has one.

    A line without its end ends with its attempt, and is not joined with one of the other stream. A line of
    more than :data:`LONGEST_LINE` is in parts.
    """
    for chunk in whole_lines(chunks):
        yield from map(text_of, _with_ends(chunk.data))
