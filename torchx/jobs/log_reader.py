"""Reads the log of a local job: all replicas in the order of time, from any moment, to the end or further."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import time
from collections.abc import Callable, Iterator

from torchx.jobs.log_index import LAYOUT, PARTIAL, STDERR, STDOUT, Piece, decode, is_plausible
from torchx.jobs.log_lines import LONGEST_LINE as LONGEST_LINE
from torchx.jobs.log_lines import (
    Lines,
    Source,
    Span,
    Unfinished,
    first_at,
    matching,
    source_of,
    takes,
)
from torchx.jobs.log_lines import Member as Member
from torchx.jobs.paths import LogPaths
from torchx.machine import files
from torchx.scheduling.logs import LogChunk, LogQuery, Stream

BLOCK = 4096 * LAYOUT.size
"""Bytes of the index that are looked at together."""

POLL = 0.01
"""Seconds between two looks at the index while following, at most."""

QUICK_POLL = 0.001
"""Seconds until the next look when little came, as a short job has ended by then; doubled at each one."""

LITTLE = 16 * LAYOUT.size
"""Bytes of the index; when more came together, more will: it is read in larger parts."""

MOST_OPEN = 256
"""Log files that a reader holds open at a time, or half of what it may, when that is less."""


class JobLog:
    """The log of one job.

    Args:
        paths: its log tree.
        members: its replicas, by ordinal.
        lives: tells whether more may still be written.
    """

    def __init__(self, paths: LogPaths, members: list[Member], lives: Callable[[], bool]) -> None:
        self._paths = paths
        self._members = members
        self._lives = lives
        self._files: dict[tuple[int, int], int] = {}
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_open = max(1, min(MOST_OPEN, soft // 2)) if soft > 0 else MOST_OPEN

    def read(self, query: LogQuery) -> Iterator[LogChunk]:
        """Yields what is asked for, whole lines as far as there are any."""
        wanted = [self._wants(member, query) for member in self._members]
        lines, span = Lines(query), Span(query)
        ends: dict[int, tuple[int, int]] = {}  # replica: attempt, and how far its combined log is told
        self._from_begin = True
        self._unfinished: Unfinished | None = None
        self._known: set[Source] = set()
        try:
            for piece in self._pieces(query, wanted):
                if piece is None:
                    yield from lines.up_to_now()
                    continue
                if not self._is_of(piece, wanted):
                    continue
                attempt, end = ends.get(piece.replica, (0, 0))
                if piece.attempt < attempt or (piece.attempt == attempt and piece.offset < end):
                    continue  # a damaged entry: what was told is not told again
                ends[piece.replica] = (piece.attempt, piece.offset + piece.length)
                if span.takes(piece):
                    for each in self._from_its_begin(piece):
                        data = span.cut(each, self._bytes(each))
                        yield from lines.add(each, data, self._members[each.replica])
            if query.until is None and not self._lives():
                if self._from_begin:  # else a replica may have entries before those that were looked at
                    ends = {**self._beginnings(wanted), **ends}
                for piece, data in self._unindexed(query, ends):
                    yield from lines.add(piece, span.cut(piece, data), self._members[piece.replica])
            yield from lines.rest(self._members)
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    # --- the index -------------------------------------------------------------------------------

    def _pieces(self, query: LogQuery, wanted: list[bool]) -> Iterator[Piece | None]:
        """Yields the entries of the index from the first that can matter on; None after all there is now."""
        pause = QUICK_POLL
        while True:
            alive = self._lives()  # asked before the look: what was written until then is seen by it
            try:
                descriptor = files.open_file(self._paths.index, own=False)
                break
            except FileNotFoundError:
                if not (query.follow and alive):
                    return
            except OSError:
                return  # a pipe or a link in its place is no index
            time.sleep(pause)
            pause = min(2 * pause, POLL)
        try:
            position = 0
            if query.since is not None:
                position = first_at(descriptor, int(query.since.timestamp() * 1e9))
            if query.tail is not None:
                position = self._tail_position(descriptor, position, query, wanted)
            self._from_begin = position == 0
            self._unfinished = Unfinished(descriptor, position, BLOCK) if position else None
            while True:
                alive = self._lives()
                data = os.pread(descriptor, BLOCK, position)
                data = data[: len(data) - len(data) % LAYOUT.size]
                position += len(data)
                yield from decode(data)
                if data:
                    pause = QUICK_POLL if len(data) <= LITTLE else POLL
                    continue
                if not (query.follow and alive):
                    return
                yield None
                time.sleep(pause)
                pause = min(2 * pause, POLL)
        finally:
            os.close(descriptor)

    def _tail_position(self, descriptor: int, first: int, query: LogQuery, wanted: list[bool]) -> int:
        """Returns the place in the index from which on there are at least the wanted number of lines."""
        assert query.tail is not None
        end = os.fstat(descriptor).st_size // LAYOUT.size * LAYOUT.size
        pattern = re.compile(query.regex) if query.regex is not None else None
        wanted_lines = query.tail + 2 * len(self._members)  # the begin of a line may be left out by its time
        found = 0
        while end > first:
            begin = max(first, end - BLOCK)
            pieces = list(decode(os.pread(descriptor, end - begin, begin)))
            for number in range(len(pieces) - 1, -1, -1):
                piece = pieces[number]
                if self._is_of(piece, wanted) and takes(piece, query):
                    data = self._bytes(piece)
                    # the lines to either side of a partial one may be in other pieces: count low, read more
                    found += (data if pattern is None else matching(data, pattern)).count(b"\n")
                if found > wanted_lines:
                    return begin + number * LAYOUT.size
            end = begin
        return first

    def _from_its_begin(self, piece: Piece) -> list[Piece]:
        """Returns a piece after those that its line begins with, where these were passed over."""
        source = source_of(piece)
        if self._unfinished is None or source in self._known:
            return [piece]
        self._known.add(source)
        return [*self._unfinished.pieces(piece), piece]

    # --- what the index does not tell ------------------------------------------------------------

    def _unindexed(self, query: LogQuery, ends: dict[int, tuple[int, int]]) -> Iterator[tuple[Piece, bytes]]:
        """Yields what was written and not noted: by a killed supervisor, or on a full disk."""
        for replica, (attempt, told) in sorted(ends.items()):
            try:
                size = os.fstat(self._open(replica, attempt)).st_size
            except OSError:
                continue  # somebody removed it
            if size > told and query.stream is not Stream.COMBINED:
                yield from self._rest_of_stream(replica, attempt, query.stream)
                continue
            for begin in range(told, size, LONGEST_LINE):
                length = min(size - begin, LONGEST_LINE)
                piece = Piece(time.time_ns(), begin, length, replica, attempt, STDOUT, PARTIAL)
                yield piece, self._bytes(piece)

    def _rest_of_stream(self, replica: int, attempt: int, stream: Stream) -> Iterator[tuple[Piece, bytes]]:
        """Yields what the own file of a stream holds beyond what was noted of it.

        Of the combined log only the index tells which bytes came from which stream.
        """
        number = STDERR if stream is Stream.STDERR else STDOUT
        with contextlib.suppress(OSError):  # somebody removed the log
            told = self._noted.get((replica, attempt, number), 0)
            path = self._paths.replica(*self._members[replica]) / f"{stream}.log"
            with open(files.open_file(path, own=False), "rb") as file:
                file.seek(told)
                while data := file.read(LONGEST_LINE):
                    yield Piece(time.time_ns(), told, len(data), replica, attempt, number, PARTIAL), data
                    told += len(data)

    @functools.cached_property
    def _noted(self) -> dict[tuple[int, int, int], int]:
        """How many bytes the index tells of, by replica, attempt and stream; read once for all of them."""
        noted: dict[tuple[int, int, int], int] = {}
        with (
            contextlib.suppress(OSError),
            open(files.open_file(self._paths.index, own=False), "rb") as index,
        ):
            while data := index.read(BLOCK):
                for p in decode(data):
                    key = p.replica, p.attempt, p.stream
                    noted[key] = noted.get(key, 0) + p.length
        return noted

    def _beginnings(self, wanted: list[bool]) -> dict[int, tuple[int, int]]:
        """Returns the begin of the current attempt's log for each replica that has one."""
        found = {}
        for replica, member in enumerate(self._members):
            folder = self._paths.replica(*member)
            if wanted[replica] and (folder / "combined.log").exists():
                found[replica] = (1 + len(list(folder.glob("attempt-*"))), 0)
        return found

    # --- the logs --------------------------------------------------------------------------------

    def _bytes(self, piece: Piece) -> bytes:
        try:
            return os.pread(self._open(piece.replica, piece.attempt), piece.length, piece.offset)
        except OSError:
            return b""  # somebody removed it, or made something else of it

    def _open(self, replica: int, attempt: int) -> int:
        key = (replica, attempt)
        descriptor = self._files.get(key)
        if descriptor is None:
            if len(self._files) >= self._most_open:
                os.close(self._files.pop(next(iter(self._files))))
            descriptor = self._files[key] = self._open_new(*self._members[replica], attempt)
        return descriptor

    def _open_new(self, role: str, replica: int, attempt: int) -> int:
        """Opens a combined log that may be set aside for a newer attempt at this very moment."""
        folder = self._paths.replica(role, replica)
        aside = folder / f"attempt-{attempt}" / "combined.log"
        if not aside.exists():
            descriptor = files.open_file(folder / "combined.log", own=False)
            if not aside.exists():
                return descriptor
            os.close(descriptor)
        return files.open_file(aside, own=False)

    @staticmethod
    def _is_of(piece: Piece, wanted: list[bool]) -> bool:
        """Tells whether an entry is of a wanted replica; a damaged index may hold anything."""
        return piece.replica < len(wanted) and wanted[piece.replica] and is_plausible(piece)

    @staticmethod
    def _wants(member: Member, query: LogQuery) -> bool:
        if not query.replicas:
            return True
        ids = query.replicas.get(member.role)
        return ids is not None and (not ids or member.replica in ids)
