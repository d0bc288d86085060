"""Reads the log of a local job: all replicas in the order of time, from any moment, to the end or further."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torchx import files
from torchx.jobs.log_index import LAYOUT, PARTIAL, STDERR, STDOUT, Piece, decode, is_plausible
from torchx.jobs.paths import LogPaths
from torchx.logs import LogChunk, LogQuery, Stream

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

LONGEST_LINE = 1 << 20
"""Bytes after which a line that has no end yet is handed on in parts."""

_STREAMS = {STDOUT: Stream.STDOUT, STDERR: Stream.STDERR}


class Member(NamedTuple):
    """A replica by its role and its id within it."""

    role: str
    replica: int


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
        lines = Lines(query)
        ends: dict[int, tuple[int, int]] = {}  # replica: attempt, and how far its combined log is told
        self._from_begin = True
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
                if takes(piece, query):
                    yield from lines.add(piece, self._bytes(piece), self._members[piece.replica])
            if query.until is None and not self._lives():
                if self._from_begin:  # else a replica may have entries before those that were looked at
                    ends = {**self._beginnings(wanted), **ends}
                for piece, data in self._unindexed(query, ends):
                    yield from lines.add(piece, data, self._members[piece.replica])
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
                position = _first_at(descriptor, int(query.since.timestamp() * 1e9))
            if query.tail is not None:
                position = self._tail_position(descriptor, position, query, wanted)
            self._from_begin = position == 0
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
                if found > query.tail:
                    return begin + number * LAYOUT.size
            end = begin
        return first

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


class Lines:
    """Puts parts of lines together, drops lines that do not match, and keeps the last few when asked to."""

    def __init__(self, query: LogQuery) -> None:
        self._pattern = re.compile(query.regex) if query.regex is not None else None
        # whoever follows wants to see a prompt before its line has an end
        self._hand_on_parts = query.follow and self._pattern is None
        self._parts: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        self._tail = query.tail
        self._last: list[LogChunk] = []
        self._last_lines = 0

    def add(self, piece: Piece, data: bytes, member: Member) -> Iterator[LogChunk]:
        """Takes one piece and yields what can be told now."""
        key = (piece.replica, piece.attempt, piece.stream)
        since, held = self._parts.pop(key, (piece.ns, b""))
        if held:
            data = held + data
        if piece.flags & PARTIAL and not self._hand_on_parts and len(data) < LONGEST_LINE:
            self._parts[key] = (since, data)
            return
        yield from self._tell(since, piece, data, member)

    def rest(self, members: list[Member]) -> Iterator[LogChunk]:
        """Yields what was held back."""
        for (replica, attempt, stream), (since, data) in self._parts.items():
            piece = Piece(since, 0, len(data), replica, attempt, stream, PARTIAL)
            yield from self._tell(since, piece, data, members[replica])
        yield from self.up_to_now()

    def up_to_now(self) -> Iterator[LogChunk]:
        """Yields the last few lines; what comes from now on is told as it comes."""
        last, self._last, self._tail = self._last, [], None
        yield from last

    def _tell(self, since: int, piece: Piece, data: bytes, member: Member) -> Iterator[LogChunk]:
        if self._pattern is not None:
            data = matching(data, self._pattern)
        if not data:
            return
        chunk = LogChunk(
            member.role, member.replica, piece.attempt, _STREAMS[piece.stream], since / 1e9, data
        )
        if self._tail is None:
            yield chunk
            return
        self._last.append(chunk)
        self._last_lines += _count(chunk.data)
        while self._last and self._last_lines > self._tail:
            first = self._last[0]
            lines = _count(first.data)
            if self._last_lines - lines >= self._tail:
                self._last.pop(0)
                self._last_lines -= lines
            else:
                # a carriage return, as of a progress bar, ends no line
                keep = first.data.split(b"\n", self._last_lines - self._tail)[-1]
                self._last[0] = LogChunk(
                    first.role, first.replica, first.attempt, first.stream, first.time, keep
                )
                self._last_lines = self._tail


def _count(data: bytes) -> int:
    """Counts lines; the last one need not have an end."""
    return data.count(b"\n") + (not data.endswith(b"\n"))


def takes(piece: Piece, query: LogQuery) -> bool:
    """Tells whether a piece is of the wanted stream and time."""
    if query.stream is not Stream.COMBINED and _STREAMS.get(piece.stream) is not query.stream:
        return False
    if query.since is not None and piece.ns < query.since.timestamp() * 1e9:
        return False
    return query.until is None or piece.ns < query.until.timestamp() * 1e9


def matching(data: bytes, pattern: re.Pattern[str]) -> bytes:
    """Returns the lines in which the pattern is found; bytes that are no text stay as they are."""
    search = pattern.search
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    last = lines.pop()
    kept = [line + "\n" for line in lines if search(line)]
    if last and search(last):
        kept.append(last)
    return "".join(kept).encode("utf-8", "surrogateescape")


def _first_at(descriptor: int, ns: int) -> int:
    """Returns the place in the index of the first entry that is not older than a moment."""
    low, high = 0, os.fstat(descriptor).st_size // LAYOUT.size
    while low < high:
        middle = (low + high) // 2
        (piece,) = decode(os.pread(descriptor, LAYOUT.size, middle * LAYOUT.size))
        if piece.ns < ns:
            low = middle + 1
        else:
            high = middle
    return low * LAYOUT.size
