"""Select pieces of output for a query and assemble them into lines."""

from __future__ import annotations

import bisect
import math
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchx.jobs.log_index import LAYOUT, STDERR, STDOUT, Piece, decode, is_plausible
from torchx.scheduling.logs import LONGEST_LINE as LONGEST_LINE
from torchx.scheduling.logs import LogChunk, LogQuery, Stream, matching, whole_characters

LATEST = 1 << 64
"""Later than any entry."""

STREAMS = {STDOUT: Stream.STDOUT, STDERR: Stream.STDERR}

Source = tuple[int, int, int]
"""The source of a line: replica, attempt and stream."""


class Member(NamedTuple):
    """A replica by its role and its id within it."""

    role: str
    replica: int


def source_of(piece: Piece) -> Source:
    """Returns the source of a piece."""
    return piece.replica, piece.attempt, piece.stream


class Span:
    """Selects whole lines within the time range of a query; a line has the time of its first piece."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._since, self._until = -math.inf, math.inf
        if query.since is not None:
            self._since = query.since.timestamp() * 1e9
        if query.until is not None:
            self._until = query.until.timestamp() * 1e9
        self._unfinished: dict[Source, bool] = {}  # whether the unfinished line is selected

    def includes(self, piece: Piece) -> bool:
        """Returns True if a piece is of the time range of the query."""
        return self._since <= piece.ns < self._until

    def cut(self, piece: Piece, data: bytes) -> bytes:
        """Returns the selected part of a piece; the pieces of each source must be passed in order."""
        inside = self.includes(piece)
        source = source_of(piece)
        wanted = self._unfinished.pop(source, inside)
        if wanted == inside:
            end = len(data)
        else:
            end = data.find(b"\n") + 1 or len(data)
        if piece.is_partial and not data.endswith(b"\n"):
            if end < len(data):
                self._unfinished[source] = inside
            else:
                self._unfinished[source] = wanted
        return (data[:end] if wanted else b"") + (data[end:] if inside else b"")

    def takes(self, piece: Piece) -> bool:
        """Returns True if a piece is of the stream of the query."""
        return self._query.stream in (Stream.COMBINED, STREAMS[piece.stream])


class Unfinished:
    """Finds the lines that are unfinished at a position of an index, reading backwards as far as needed.

    Args:
        descriptor: the index.
        position: the position.
        block: bytes to read at a time.
    """

    def __init__(self, descriptor: int, position: int, block: int) -> None:
        self._descriptor, self._position, self._block = descriptor, position, block
        self._found: dict[Source, list[Piece]] = {}  # backwards
        self._ended: set[Source] = set()
        self._begun: set[tuple[int, int]] = set()  # attempts whose first piece was read

    def pieces(self, piece: Piece) -> list[Piece]:
        """Returns the earlier pieces of the line that a piece continues."""
        source = source_of(piece)
        attempt = source[:2]
        while not (source in self._ended or attempt in self._begun) and piece.offset and self._position > 0:
            self._go_back()
        return self._found.pop(source, [])[::-1]

    def _go_back(self) -> None:
        begin = max(0, self._position - self._block)
        data = os.pread(self._descriptor, self._position - begin, begin)
        self._position = begin
        for piece in reversed(list(decode(data))):
            source = source_of(piece)
            if source in self._ended or not is_plausible(piece):
                continue
            if piece.is_partial:
                self._found.setdefault(source, []).append(piece)
            else:
                self._ended.add(source)
            if not piece.offset:
                self._begun.add(source[:2])


class TailStart:
    """Finds the piece from which on at least the requested number of lines follows.

    Args:
        query: a query with a tail.
        sources: the number of sources whose first line may begin too early for the query.
    """

    def __init__(self, query: LogQuery, sources: int) -> None:
        self._pattern = re.compile(query.regex) if query.regex is not None else None
        assert query.tail is not None
        self._missing = query.tail + sources
        self._later: dict[Source, bytes] = {}  # the first line of a later piece, which may begin earlier

    def reached(self, piece: Piece, data: bytes) -> bool:
        """Counts the lines of the previous piece; returns True if no earlier piece is needed."""
        if self._pattern is not None:
            source = source_of(piece)
            line, ended, data = (data + self._later.pop(source, b"")).partition(b"\n")
            # a very long line is not counted: that reads more than needed
            if len(line) < LONGEST_LINE:
                self._later[source] = line + ended
            else:
                self._later[source] = b""
            data = matching(data, self._pattern)
        self._missing -= data.count(b"\n")
        return self._missing <= 0


def with_unfinished(pieces: Sequence[Piece], at: int) -> list[Piece]:
    """Returns the pieces from a position on, preceded by those of lines that are unfinished there."""
    begun: dict[Source, list[Piece]] = {}
    for piece in pieces[:at]:
        if piece.is_partial:
            begun.setdefault(source_of(piece), []).append(piece)
        else:
            begun.pop(source_of(piece), None)
    return [*(piece for parts in begun.values() for piece in parts), *pieces[at:]]


@dataclass(eq=False, repr=False)
class _Kept:
    """Consecutive lines of one source in a tail; the last line may be unfinished."""

    first: LogChunk
    parts: list[bytes]
    lines: int
    dropped: bool = False

    def chunk(self) -> LogChunk:
        first = self.first
        data = b"".join(self.parts)
        return LogChunk(first.role, first.replica, first.attempt, first.stream, first.time, data)


@dataclass(eq=False, repr=False)
class _Tail:
    """The last `count` lines; a line in several parts counts once."""

    count: int
    kept: deque[_Kept] = field(default_factory=deque)
    lines: int = 0
    unfinished: dict[Source, _Kept] = field(default_factory=dict)

    def add(self, source: Source, chunk: LogChunk) -> None:
        """Adds lines; the first may continue an unfinished one."""
        data = self.go_on(source, chunk.data)
        if not data:
            return
        kept = _Kept(chunk, [data], data.count(b"\n") + (not data.endswith(b"\n")))
        self.kept.append(kept)
        self.lines += kept.lines
        if not data.endswith(b"\n"):
            self.unfinished[source] = kept
        self._shorten()

    def go_on(self, source: Source, data: bytes) -> bytes:
        """Adds the part that continues an unfinished line; returns the rest."""
        kept = self.unfinished.pop(source, None)
        if kept is None:
            return data
        end = data.find(b"\n") + 1 or len(data)
        if not kept.dropped:
            kept.parts.append(data[:end])
        if not data[:end].endswith(b"\n"):
            self.unfinished[source] = kept
        return data[end:]

    def _shorten(self) -> None:
        while self.lines > self.count:
            first, surplus = self.kept[0], self.lines - self.count
            if first.lines <= surplus:
                self.kept.popleft().dropped = True
                self.lines -= first.lines
            else:  # a carriage return, as of a progress bar, does not end a line
                first.parts = [b"".join(first.parts).split(b"\n", surplus)[-1]]
                first.lines -= surplus
                self.lines = self.count


class Lines:
    """Assembles lines, drops those that do not match, and applies the tail of a query."""

    def __init__(self, query: LogQuery) -> None:
        self._pattern = re.compile(query.regex) if query.regex is not None else None
        # when following, show a prompt before its line ends
        self._yield_parts = query.follow and self._pattern is None
        self._parts: dict[Source, tuple[int, bytes]] = {}
        self._attempts: dict[int, int] = {}  # the current attempt of each replica
        self._matched: dict[Source, bool] = {}  # whether the unfinished line is shown
        if query.tail is None:
            self._tail = None
        else:
            self._tail = _Tail(query.tail)
        self._cut_off: set[Source] = set()  # sources of unfinished lines whose start was dropped

    def add(self, piece: Piece, data: bytes, member: Member) -> Iterator[LogChunk]:
        """Adds one piece; yields the chunks that are complete."""
        source = source_of(piece)
        before = self._attempts.get(piece.replica, piece.attempt)
        self._attempts[piece.replica] = piece.attempt
        if before != piece.attempt:  # an unfinished line ends with its attempt
            for stream in STREAMS:
                yield from self._unheld((piece.replica, before, stream), member)
        since, held = self._parts.pop(source, (piece.ns, b""))
        data = held + data if held else data
        if not data:
            return
        if piece.is_partial:
            if not self._yield_parts and len(data) < LONGEST_LINE:
                self._parts[source] = (since, data)
                return
            end = whole_characters(data)
            if end < len(data):
                self._parts[source] = (piece.ns, data[end:])
                data = data[:end]
        yield from self._chunks(since, source, data, member)

    def rest(self, members: list[Member]) -> Iterator[LogChunk]:
        """Yields the lines that are still buffered."""
        for source in list(self._parts):
            yield from self._unheld(source, members[source[0]])
        yield from self.up_to_now()

    def _unheld(self, source: Source, member: Member) -> Iterator[LogChunk]:
        since, data = self._parts.pop(source, (0, b""))
        if data:
            yield from self._chunks(since, source, data, member)

    def up_to_now(self) -> Iterator[LogChunk]:
        """Yields the lines of the tail; later lines are no longer limited by it."""
        tail, self._tail = self._tail, None
        if tail is not None:
            self._cut_off = {source for source, kept in tail.unfinished.items() if kept.dropped}
            yield from (kept.chunk() for kept in tail.kept)

    def _chunks(self, since: int, source: Source, data: bytes, member: Member) -> Iterator[LogChunk]:
        if self._pattern is not None:
            data = self._matching(self._pattern, source, data)
        if source in self._cut_off:
            _, ended, data = data.partition(b"\n")
            self._cut_off -= {source} if ended else set()
        if not data:
            return
        _, attempt, stream = source
        chunk = LogChunk(member.role, member.replica, attempt, STREAMS[stream], since / 1e9, data)
        if self._tail is None:
            yield chunk
        else:
            self._tail.add(source, chunk)

    def _matching(self, pattern: re.Pattern[str], source: Source, data: bytes) -> bytes:
        """Returns the matching lines; a line in parts is returned from its first matching part on."""
        begin = b""
        if source in self._matched:
            end = data.find(b"\n") + 1 or len(data)
            first, data = data[:end], data[end:]
            shown = self._matched.pop(source) or bool(matching(first, pattern))
            begin = first if shown else b""
            if not first.endswith(b"\n"):
                self._matched[source] = shown
        if data and not data.endswith(b"\n"):
            self._matched[source] = bool(matching(data.rpartition(b"\n")[2], pattern))
        if data:
            return begin + matching(data, pattern)
        return begin


def first_at(descriptor: int, ns: int) -> int:
    """Returns the position in an index of the first entry at or after a time."""

    def time_of(number: int) -> int:
        entry = Piece._make(LAYOUT.unpack(os.pread(descriptor, LAYOUT.size, number * LAYOUT.size)))
        return entry.ns or LATEST  # zeros after a crash of the machine

    entries = range(os.fstat(descriptor).st_size // LAYOUT.size)
    return bisect.bisect_left(entries, ns, key=time_of) * LAYOUT.size
