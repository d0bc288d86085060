"""Reads the logs of a Slurm job: all replicas in the order of time, where their nodes have left them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.log_index import LAYOUT, PARTIAL, STDERR, STDOUT, Piece, decode
from torchx.jobs.log_lines import LONGEST_LINE, Lines, Member, Span, matching, takes, with_unfinished
from torchx.machine import files
from torchx.schedulers.slurm.paths import ATTEMPT, SlurmPaths
from torchx.scheduling.logs import LogChunk, LogQuery

POLL = 0.1
"""Seconds between two looks while following, at least; with many replicas they are further apart."""
SHARE = 5.0
"""So many times as long as a look takes is the pause before the next one."""
MOST_OPEN = 200

_RAW = {STDOUT: "stdout.log", STDERR: "stderr.log"}


@dataclass
class _Source:
    """The output of one attempt of one replica, and how far it is read."""

    folder: Path
    replica: int
    attempt: int
    position: int = 0

    def pieces(self) -> list[Piece]:
        """Returns what its index has beyond what was read, as pieces of the job."""
        try:
            with os.fdopen(files.open_file(self.folder / "log.index"), "rb", buffering=0) as file:
                file.seek(self.position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % LAYOUT.size
        self.position += whole
        return [piece._replace(replica=self.replica, attempt=self.attempt) for piece in decode(data[:whole])]


@dataclass
class _Plain(_Source):
    """The same of a node without Python: nobody has noted any times."""

    stderr_position: int = 0

    def pieces(self) -> list[Piece]:
        """Returns what was written since; all of it at the time of the last write."""
        found = []
        for stream, name in _RAW.items():
            try:
                status = (self.folder / name).stat()
            except FileNotFoundError:
                continue
            begin = self.position if stream == STDOUT else self.stderr_position
            for at in range(begin, status.st_size, LONGEST_LINE):
                length = min(LONGEST_LINE, status.st_size - at)
                found.append(
                    Piece(status.st_mtime_ns, at, length, self.replica, self.attempt, stream, PARTIAL)
                )
            if stream == STDOUT:
                self.position = max(begin, status.st_size)
            else:
                self.stderr_position = max(begin, status.st_size)
        return found


def require_folder(paths: SlurmPaths, over: bool) -> None:
    """Makes sure that the logs of a job can be read here.

    Args:
        paths: its files.
        over: whether it has ended, so that they would have to be there.

    Raises:
        StateError: they belong to other people, or are not to be seen from this machine.
    """
    try:
        with os.scandir(paths.folder):
            pass
    except FileNotFoundError:
        if over:
            raise StateError(
                f"the logs of the job are not here: there is no {paths.folder}",
                hint="a machine that shares the file system with the nodes sees them",
            ) from None
    except OSError as error:
        raise StateError(f"the logs of the job cannot be read: {error.strerror}: {paths.folder}") from error


class SlurmLog:
    """The log of one job.

    Args:
        paths: its files.
        members: its replicas, by ordinal.
        lives: tells whether more may still be written.
    """

    def __init__(self, paths: SlurmPaths, members: list[Member], lives: Callable[[], bool]) -> None:
        self._paths = paths
        self._members = members
        self._lives = lives
        self._sources: dict[tuple[int, int], _Source] = {}
        self._files: dict[Path, int] = {}

    def read(self, query: LogQuery) -> Iterator[LogChunk]:
        """Yields what is asked for, whole lines as far as there are any."""
        lines = Lines(query)
        self._span = Span(query)
        self._sources.clear()
        wanted = [ordinal for ordinal, member in enumerate(self._members) if _wants(member, query)]
        try:
            alive = query.follow and query.until is None and self._lives()
            first = self._new(wanted)
            for piece in first if query.tail is None else self._last(first, query):
                yield from self._add(lines, piece)
            if alive:
                yield from lines.up_to_now()
                yield from self._follow(lines, wanted, query)
            yield from lines.rest(self._members)
        finally:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def _follow(self, lines: Lines, wanted: list[int], query: LogQuery) -> Iterator[LogChunk]:
        held: list[Piece] = []
        alive = True
        while alive:
            begun = time.monotonic()
            alive = self._lives()  # asked before the look: what was written until then is seen by it
            moment = time.time_ns()
            fresh = self._new(wanted)
            # what came during the look waits for the next one: an earlier line may be in a file read before
            ready = held + ([piece for piece in fresh if piece.ns <= moment] if alive else fresh)
            held = [piece for piece in fresh if piece.ns > moment] if alive else []
            for piece in sorted(ready, key=_age):
                yield from self._add(lines, piece)
            if alive:
                time.sleep(max(POLL, SHARE * (time.monotonic() - begun)) if not ready else POLL)

    def _new(self, wanted: list[int]) -> list[Piece]:
        """Returns all that was written since the last look, in the order of time."""
        found: list[Piece] = []
        for ordinal in wanted:
            for source in self._of(ordinal):
                found += source.pieces()
        return sorted(found, key=_age)

    def _of(self, ordinal: int) -> Iterator[_Source]:
        """Yields the attempts of a replica, in their order."""
        folder = self._paths.replica(*self._members[ordinal])
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return
        for attempt in sorted(int(match[1]) for name in names if (match := ATTEMPT.fullmatch(name))):
            key = (ordinal, attempt)
            if key not in self._sources:
                path = folder / f"attempt-{attempt}"
                if (path / "log.index").exists():
                    self._sources[key] = _Source(path, ordinal, attempt)
                elif (path / "stdout.log").exists() and not (path / "combined.log").exists():
                    self._sources[key] = _Plain(path, ordinal, attempt)
                else:
                    continue  # it is just being made
            yield self._sources[key]

    def _last(self, pieces: list[Piece], query: LogQuery) -> list[Piece]:
        """Returns the pieces that hold the wanted number of last lines at least."""
        assert query.tail is not None
        pattern = re.compile(query.regex) if query.regex is not None else None
        found = 0
        for at in range(len(pieces) - 1, -1, -1):
            if takes(pieces[at], query):
                data = self._bytes(pieces[at])
                found += (data if pattern is None else matching(data, pattern)).count(b"\n")
            if found > query.tail:
                return with_unfinished(pieces, at)
        return pieces

    def _add(self, lines: Lines, piece: Piece) -> Iterator[LogChunk]:
        if self._span.takes(piece):
            data = self._span.cut(piece, self._bytes(piece))
            yield from lines.add(piece, data, self._members[piece.replica])

    def _bytes(self, piece: Piece) -> bytes:
        source = self._sources[piece.replica, piece.attempt]
        path = source.folder / (_RAW[piece.stream] if isinstance(source, _Plain) else "combined.log")
        try:
            descriptor = self._files.get(path)
            if descriptor is None:
                if len(self._files) >= MOST_OPEN:
                    os.close(self._files.pop(next(iter(self._files))))
                descriptor = self._files[path] = files.open_file(path)
            return os.pread(descriptor, piece.length, piece.offset)
        except FileNotFoundError:
            return b""  # somebody removed it


def _age(piece: Piece) -> tuple[int, int]:
    return piece.ns, piece.replica


def _wants(member: Member, query: LogQuery) -> bool:
    if not query.replicas:
        return True
    ids = query.replicas.get(member.role)
    return ids is not None and (not ids or member.replica in ids)
