"""Read and follow the logs of a local job: all replicas, merged by time."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator

from torchx.jobs.log_index import LAYOUT, PARTIAL, STDOUT, Piece, decode, is_plausible
from torchx.jobs.log_lines import LONGEST_LINE as LONGEST_LINE
from torchx.jobs.log_lines import (
    STREAMS,
    Lines,
    Source,
    Span,
    TailStart,
    Unfinished,
    first_at,
    source_of,
)
from torchx.jobs.log_lines import Member as Member
from torchx.jobs.paths import LogPaths
from torchx.machine import files
from torchx.scheduling.logs import LogChunk, LogQuery, Stream

BLOCK = 4096 * LAYOUT.size
"""Bytes of the index to read at a time."""

POLL = 0.01
"""Maximum seconds between two reads of the index while following."""

QUICK_POLL = 0.001
"""Seconds until the next read after a short one, as a short job may end soon; doubled each time."""

LITTLE = 16 * LAYOUT.size
"""Bytes of the index; after a larger read, the next one waits for `POLL`."""

MOST_OPEN = 64
"""Maximum number of log files a reader keeps open."""


class JobLog:
    """The log of one job.

    Args:
        paths: its log tree.
        members: its replicas, by ordinal.
        lives: returns True while more may be written.
    """

    def __init__(self, paths: LogPaths, members: list[Member], lives: Callable[[], bool]) -> None:
        self._paths = paths
        self._members = members
        self._lives = lives
        self._files: dict[tuple[int, int], int] = {}

    def read(self, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the output that matches a query, by whole lines as far as possible."""
        wanted = [query.selects(*member) for member in self._members]
        lines, span = Lines(query), Span(query)
        ends: dict[int, tuple[int, int]] = {}  # replica: attempt, and end of the indexed part of its log
        self._from_begin = True
        self._unfinished: Unfinished | None = None
        self._known: set[Source] = set()
        try:
            for piece in self._pieces(query, span, wanted):
                if piece is None:
                    yield from lines.up_to_now()
                    continue
                if not self._is_of(piece, wanted):
                    continue
                if (piece.attempt, piece.offset) < ends.get(piece.replica, (0, 0)):
                    continue  # a damaged entry that repeats earlier output
                ends[piece.replica] = (piece.attempt, piece.offset + piece.length)
                if span.takes(piece):
                    for part in self._with_line_start(piece):
                        data = span.cut(part, self._bytes(part))
                        yield from lines.add(part, data, self._members[part.replica])
            if query.until is None and not self._lives():
                for replica, begin in self._beginnings(wanted).items():
                    if self._from_begin or replica in ends:  # else it may have entries that were not read
                        ends[replica] = max(begin, ends.get(replica, begin))
                for piece, data in self._unindexed(query, ends):
                    yield from lines.add(piece, span.cut(piece, data), self._members[piece.replica])
            yield from lines.rest(self._members)
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    # --- the index -------------------------------------------------------------------------------

    def _pieces(self, query: LogQuery, span: Span, wanted: list[bool]) -> Iterator[Piece | None]:
        """Yields the entries of the index from the first relevant one; yields None at its current end."""
        while True:
            alive = self._lives()  # before the read, which then sees everything written until now
            try:
                descriptor = files.open_file(self._paths.index, own=False)
                break
            except FileNotFoundError:
                if not (query.follow and alive):
                    return
            except OSError:
                return  # not an index: a pipe or a link in its place
            time.sleep(POLL)
        try:
            pause, position = QUICK_POLL, 0
            if query.since is not None:
                position = first_at(descriptor, int(query.since.timestamp() * 1e9))
            if query.tail is not None:
                position = self._tail_position(descriptor, position, query, span, wanted)
            self._from_begin = position == 0
            if position:
                self._unfinished = Unfinished(descriptor, position, BLOCK)
            else:
                self._unfinished = None
            while True:
                alive = self._lives()
                data = os.pread(descriptor, BLOCK, position)
                whole = len(data) // LAYOUT.size * LAYOUT.size
                position += whole
                yield from decode(data)
                if whole:
                    pause = QUICK_POLL if whole <= LITTLE else POLL
                    continue
                if not (query.follow and alive):
                    return
                yield None
                time.sleep(pause)
                pause = min(2 * pause, POLL)
        finally:
            os.close(descriptor)

    def _tail_position(
        self, descriptor: int, first: int, query: LogQuery, span: Span, wanted: list[bool]
    ) -> int:
        """Returns a position in the index that at least the requested number of lines follows."""
        end = os.fstat(descriptor).st_size // LAYOUT.size * LAYOUT.size
        tail = TailStart(query, 2 * len(self._members))
        while end > first:
            begin = max(first, end - BLOCK)
            pieces = list(decode(os.pread(descriptor, end - begin, begin)))
            for number in reversed(range(len(pieces))):
                piece = pieces[number]
                if not (self._is_of(piece, wanted) and span.takes(piece) and span.includes(piece)):
                    continue
                if tail.reached(piece, self._bytes(piece)):
                    return begin + number * LAYOUT.size
            end = begin
        return first

    def _with_line_start(self, piece: Piece) -> list[Piece]:
        """Returns a piece, preceded by the skipped pieces of the same line."""
        source = source_of(piece)
        if self._unfinished is None or source in self._known:
            return [piece]
        self._known.add(source)
        return [*self._unfinished.pieces(piece), piece]

    # --- output that is not in the index ---------------------------------------------------------

    def _unindexed(self, query: LogQuery, ends: dict[int, tuple[int, int]]) -> Iterator[tuple[Piece, bytes]]:
        """Yields output that is missing from the index: the supervisor was killed or the disk was full."""
        for replica, (attempt, indexed) in sorted(ends.items()):
            try:
                size = os.fstat(self._open(replica, attempt)).st_size
            except OSError:
                continue  # removed in the meantime
            if size > indexed and query.stream is not Stream.COMBINED:
                yield from self._rest_of_stream(replica, attempt, query.stream)
                continue
            for begin in range(indexed, size, LONGEST_LINE):
                piece = Piece(time.time_ns(), begin, LONGEST_LINE, replica, attempt, STDOUT, PARTIAL)
                yield piece, self._bytes(piece)

    def _rest_of_stream(self, replica: int, attempt: int, stream: Stream) -> Iterator[tuple[Piece, bytes]]:
        """Yields the unindexed end of a stream's own log file.

        Without the index, the streams of the combined log cannot be separated.
        """
        number = next(number for number, name in STREAMS.items() if name is stream)
        with contextlib.suppress(OSError):  # the log was removed
            offset = self._indexed.get((replica, attempt, number), 0)
            path = self._paths.replica(*self._members[replica]) / f"{stream}.log"
            with open(files.open_file(path, own=False), "rb") as file:
                file.seek(offset)
                while data := file.read(LONGEST_LINE):
                    yield Piece(time.time_ns(), offset, len(data), replica, attempt, number, PARTIAL), data
                    offset += len(data)

    @functools.cached_property
    def _indexed(self) -> dict[tuple[int, int, int], int]:
        """Indexed bytes by replica, attempt and stream."""
        counts: dict[tuple[int, int, int], int] = {}
        with (
            contextlib.suppress(OSError),
            open(files.open_file(self._paths.index, own=False), "rb") as index,
        ):
            while data := index.read(BLOCK):
                for p in decode(data):
                    key = p.replica, p.attempt, p.stream
                    counts[key] = counts.get(key, 0) + p.length
        return counts

    def _beginnings(self, wanted: list[bool]) -> dict[int, tuple[int, int]]:
        """Returns the start of the current attempt's log for each replica that has one."""
        found = {}
        for replica, member in enumerate(self._members):
            if not wanted[replica]:
                continue
            try:
                names = os.listdir(self._paths.replica(*member))  # noqa: PTH208 - quicker
            except OSError:  # not started
                continue
            if "combined.log" in names:
                found[replica] = (1 + sum(name.startswith("attempt-") for name in names), 0)
        return found

    # --- the logs --------------------------------------------------------------------------------

    def _bytes(self, piece: Piece) -> bytes:
        try:
            return os.pread(self._open(piece.replica, piece.attempt), piece.length, piece.offset)
        except OSError:
            return b""  # removed or replaced in the meantime

    def _open(self, replica: int, attempt: int) -> int:
        key = (replica, attempt)
        descriptor = self._files.get(key)
        if descriptor is None:
            if len(self._files) == MOST_OPEN:
                os.close(self._files.pop(next(iter(self._files))))
            descriptor = self._files[key] = self._open_new(*self._members[replica], attempt)
        return descriptor

    def _open_new(self, role: str, replica: int, attempt: int) -> int:
        """Opens a combined log, which the supervisor may be moving aside for a new attempt."""
        folder = self._paths.replica(role, replica)
        aside = folder / f"attempt-{attempt}/combined.log"
        with contextlib.suppress(FileNotFoundError):
            descriptor = files.open_file(folder / "combined.log", own=False)
            if not aside.exists():
                return descriptor
            os.close(descriptor)
        return files.open_file(aside, own=False)

    @staticmethod
    def _is_of(piece: Piece, wanted: list[bool]) -> bool:
        """Returns True if an entry is valid and of a selected replica."""
        return piece.replica < len(wanted) and wanted[piece.replica] and is_plausible(piece)
