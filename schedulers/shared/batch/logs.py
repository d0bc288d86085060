"""Read the logs of a batch job: all replicas, ordered by time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.log_index import LAYOUT, PARTIAL, STDERR, STDOUT, Piece, decode, is_plausible
from torchx.jobs.log_lines import LONGEST_LINE, Lines, Member, Span, TailStart, with_unfinished
from torchx.machine import files
from torchx.schedulers.shared.batch.paths import BatchPaths
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.batch.wait import Watch
from torchx.scheduling.logs import LogChunk, LogQuery

POLL_INTERVAL = 0.1
"""Minimum seconds between reads while following; longer with many replicas."""
PAUSE_FACTOR = 5.0
"""Ratio of the pause between reads to the time that a read takes."""
MAX_OPEN_FILES = 200

_RAW = {STDOUT: "stdout.log", STDERR: "stderr.log"}


@dataclass
class _Source:
    """The output of one attempt of one replica, and the position read so far."""

    folder: Path
    replica: int
    attempt: int
    position: int = 0

    def pieces(self) -> list[Piece]:
        """Returns the pieces added to the index since the last call."""
        try:
            with os.fdopen(files.open_file(self.folder / "log.index"), "rb", buffering=0) as file:
                # each entry is of at least one byte of the log: a damaged index may be larger
                limit = LAYOUT.size * (self.folder / "combined.log").stat().st_size
                file.seek(self.position)
                data = file.read(max(0, limit - self.position))
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % LAYOUT.size
        self.position += whole
        return [
            piece._replace(replica=self.replica, attempt=self.attempt)
            for piece in decode(data[:whole])
            if is_plausible(piece)
        ]


@dataclass
class _RawSource(_Source):
    """Output written on a node without Python: no index, no timestamps."""

    stderr_position: int = 0

    def pieces(self) -> list[Piece]:
        """Returns the output added since the last call, with the time of the last write."""
        pieces = []
        for stream, name in _RAW.items():
            try:
                status = (self.folder / name).stat()
            except FileNotFoundError:
                continue
            if stream == STDOUT:
                begin = self.position
            else:
                begin = self.stderr_position
            for at in range(begin, status.st_size, LONGEST_LINE):
                length = min(LONGEST_LINE, status.st_size - at)
                pieces.append(
                    Piece(status.st_mtime_ns, at, length, self.replica, self.attempt, stream, PARTIAL)
                )
            if stream == STDOUT:
                self.position = max(begin, status.st_size)
            else:
                self.stderr_position = max(begin, status.st_size)
        return pieces


def require_folder(paths: BatchPaths, over: bool) -> None:
    """Checks that the logs of a job can be read on this machine.

    Args:
        paths: the files of the job.
        over: True if the job has ended, so that its folder must exist.

    Raises:
        StateError: the folder does not exist or is not readable.
    """
    try:
        with os.scandir(paths.folder):
            pass
    except FileNotFoundError:
        if over:
            raise StateError(
                f"logs of the job not found: {paths.folder} does not exist",
                hint="use a machine that shares the file system with the nodes",
            ) from None
    except OSError as error:
        raise StateError(f"cannot read the logs of the job: {error.strerror}: {paths.folder}") from error


def log_chunks(record: BatchRecord, *, over: bool, watch: Watch, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the log of all replicas of a job, ordered by time.

    Args:
        record: the record of the job.
        over: the job has ended.
        watch: watches for its end.
        query: the requested output.

    Raises:
        StateError: its logs cannot be read.
    """
    if record.damage:
        raise StateError(f"cannot read the logs of the job: {record.damage}")
    require_folder(record.paths, over)
    roles = record.app.get("roles", ())
    members = [Member(role["name"], k) for role in roles for k in range(int(role.get("num_replicas", 1)))]
    return BatchLog(lambda: record.paths, members, lambda: not watch.has_ended()).read(query)


class BatchLog:
    """The log of one job.

    Args:
        paths: returns the files of the job, which may begin to run in another folder.
        members: its replicas.
        is_live: returns True while more output may be written.
    """

    def __init__(
        self, paths: Callable[[], BatchPaths], members: list[Member], is_live: Callable[[], bool]
    ) -> None:
        self._paths = paths
        self._members = members
        self._is_live = is_live
        self._sources: dict[tuple[int, int], _Source] = {}
        self._files: dict[Path, int] = {}

    def read(self, query: LogQuery) -> Iterator[LogChunk]:
        """Yields the requested output, in whole lines if possible."""
        lines = Lines(query)
        self._span = Span(query)
        self._sources.clear()
        wanted = [ordinal for ordinal, member in enumerate(self._members) if query.selects(*member)]
        try:
            alive = query.follow and query.until is None and self._is_live()
            first = self._new(wanted)
            for piece in first if query.tail is None else self._tail(first, query):
                yield from self._add(lines, piece)
            if alive:
                yield from lines.up_to_now()
                yield from self._follow(lines, wanted)
            yield from lines.rest(self._members)
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def _follow(self, lines: Lines, wanted: list[int]) -> Iterator[LogChunk]:
        held: list[Piece] = []
        alive = True
        while alive:
            begun = time.monotonic()
            alive = self._is_live()  # checked before reading, so that no output is missed
            moment = time.time_ns()
            fresh = self._new(wanted)
            # pieces added while reading wait for the next round: a file already read may have an earlier line
            ready = held + ([piece for piece in fresh if piece.ns <= moment] if alive else fresh)
            held = []
            if alive:
                held = [piece for piece in fresh if piece.ns > moment]
            for piece in sorted(ready, key=_age):
                yield from self._add(lines, piece)
            if alive:
                spent = 0.0 if ready else time.monotonic() - begun
                time.sleep(max(POLL_INTERVAL, PAUSE_FACTOR * spent))

    def _new(self, wanted: list[int]) -> list[Piece]:
        """Returns all pieces added since the last call, ordered by time."""
        pieces: list[Piece] = []
        paths = self._paths()
        for ordinal in wanted:
            for source in self._attempts(paths, ordinal):
                pieces += source.pieces()
        return sorted(pieces, key=_age)

    def _attempts(self, paths: BatchPaths, ordinal: int) -> Iterator[_Source]:
        """Yields the attempts of a replica, in order."""
        for attempt, path in paths.attempts(*self._members[ordinal]):
            key = (ordinal, attempt)
            if key not in self._sources:
                if (path / "log.index").exists():
                    self._sources[key] = _Source(path, ordinal, attempt)
                elif (path / "stdout.log").exists() and not (path / "combined.log").exists():
                    self._sources[key] = _RawSource(path, ordinal, attempt)
                else:
                    continue  # being created
            yield self._sources[key]

    def _tail(self, pieces: list[Piece], query: LogQuery) -> list[Piece]:
        """Returns the last pieces that contain at least the requested number of lines."""
        tail = TailStart(query, 2 * len(self._members))
        for at in reversed(range(len(pieces))):
            piece = pieces[at]
            if not (self._span.takes(piece) and self._span.includes(piece)):
                continue
            if tail.reached(piece, self._bytes(piece)):
                return with_unfinished(pieces, at)
        return pieces

    def _add(self, lines: Lines, piece: Piece) -> Iterator[LogChunk]:
        if self._span.takes(piece):
            data = self._span.cut(piece, self._bytes(piece))
            yield from lines.add(piece, data, self._members[piece.replica])

    def _bytes(self, piece: Piece) -> bytes:
        source = self._sources[piece.replica, piece.attempt]
        path = source.folder / (_RAW[piece.stream] if isinstance(source, _RawSource) else "combined.log")
        try:
            descriptor = self._files.get(path)
            if descriptor is None:
                if len(self._files) >= MAX_OPEN_FILES:
                    os.close(self._files.pop(next(iter(self._files))))
                descriptor = self._files[path] = files.open_file(path)
            return os.pread(descriptor, piece.length, piece.offset)
        except FileNotFoundError:
            return b""  # removed meanwhile


def _age(piece: Piece) -> tuple[int, int]:
    return piece.ns, piece.replica
