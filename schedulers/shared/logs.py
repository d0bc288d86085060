"""Log lines of an engine with timestamps: selected, ordered by time over all sources, and put into chunks.

A line is a tuple: its time, its source, and its bytes with the line end. An engine chooses the types of times
and sources; times are compared and sorted, sources are compared. A line without a line end is the last one of
its source, or the next line of the same source continues it.
"""

from __future__ import annotations

import heapq
import marshal
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from torchx.scheduling.logs import LogChunk, LogQuery, finder, text_of

BLOCK = 1 << 18
"""Bytes of a chunk, at least, after which the next one begins; also of a block of spooled lines."""

T = TypeVar("T", int, bytes)
K = TypeVar("K")

TIME: Callable[[tuple[Any, Any, bytes]], Any] = itemgetter(0)
"""Returns the time of a line, to sort by it."""


def line_filter(
    query: LogQuery, time_of: Callable[[datetime], T]
) -> Callable[[tuple[T, Any, bytes]], bool] | None:
    """Returns a filter of lines by pattern and time, or None if the query has neither.

    Args:
        query: the query.
        time_of: returns a moment as the engine's time.
    """
    tests: list[Callable[[tuple[T, Any, bytes]], bool]] = []
    if query.since is not None:
        since = time_of(query.since)
        tests.append(lambda line: line[0] >= since)
    if query.until is not None:
        until = time_of(query.until)
        tests.append(lambda line: line[0] < until)
    if query.regex is not None:
        found = finder(query.regex)
        tests.append(lambda line: found(text_of(line[2].removesuffix(b"\n"))))
    if len(tests) < 2:
        if tests:
            return tests[0]
        return None
    return lambda line: all(test(line) for test in tests)


def select(
    lines: Iterator[tuple[T, K, bytes]],
    keep: Callable[[tuple[T, K, bytes]], bool] | None,
    tail: int | None = None,
) -> Iterator[tuple[T, K, bytes]]:
    """Returns the lines that a filter keeps, or the last of them."""
    if keep is None:
        kept = lines
    else:
        kept = filter(keep, lines)
    if tail is None:
        return kept
    return iter(deque(kept, maxlen=tail))


def merged(
    sources: Sequence[Iterator[tuple[T, K, bytes]]], most: int, parallel: int
) -> Iterator[tuple[T, K, bytes]]:
    """Yields the lines of all sources, ordered by time.

    Args:
        sources: the lines of each source, ordered by time.
        most: the maximum number of sources to read at the same time; more of them are spooled to files first,
            as the numbers of open connections and files are limited.
        parallel: the number of sources to spool in parallel.
    """
    if len(sources) <= most:
        yield from sources[0] if len(sources) == 1 else heapq.merge(*sources, key=TIME)
        return
    with tempfile.TemporaryDirectory(prefix="torchx-logs-") as folder:
        files = [Path(folder) / str(number) for number in range(len(sources))]
        with ThreadPoolExecutor(parallel) as pool:
            list(pool.map(_spool, files, sources))
        yield from heapq.merge(*map(_spooled, files), key=TIME)


def last_lines(
    sources: Sequence[Iterator[tuple[T, K, bytes]]],
    keep: Callable[[tuple[T, K, bytes]], bool] | None,
    tail: int,
    parallel: int,
) -> Iterator[tuple[T, K, bytes]]:
    """Yields the last lines of all sources, ordered by time.

    In contrast to :func:`merged`, only these lines are kept, whatever the number of sources.

    Args:
        sources: the lines of each source, ordered by time.
        keep: selects lines; None for all.
        tail: the number of lines.
        parallel: the number of sources to read in parallel.
    """
    numbered = iter(enumerate(sources))
    lock = Lock()

    def read() -> list[_Placed]:
        best: list[_Placed] = []
        while True:
            with lock:
                following = next(numbered, None)
            if following is None:
                return best
            number, source = following
            for place, line in enumerate(select(source, keep, tail)):
                best.append((line[0], number, place, line))
            best = _last(best, tail)

    with ThreadPoolExecutor(parallel) as pool:
        found = [result.result() for result in [pool.submit(read) for _ in range(parallel)]]
    yield from (line for *_, line in _last([line for lines in found for line in lines], tail))


_Placed = tuple[Any, int, int, tuple[Any, Any, bytes]]
"""A line with its time, the number of its source and its place in the source."""


def _last(lines: list[_Placed], tail: int) -> list[_Placed]:
    lines.sort(key=itemgetter(0, 1, 2))
    if tail:
        return lines[-tail:]
    return []


def _spool(path: Path, lines: Iterable[tuple[Any, Any, bytes]]) -> None:
    with path.open("wb") as file:
        block: list[tuple[Any, Any, bytes]] = []
        size = 0
        for line in lines:
            block.append(line)
            size += len(line[2])
            if size > BLOCK:
                marshal.dump(block, file)
                block, size = [], 0
        marshal.dump(block, file)


def _spooled(path: Path) -> Iterator[tuple[Any, Any, bytes]]:
    """Yields the lines of a file, which is open only while a block is read."""
    position, end = 0, path.stat().st_size
    while position < end:
        with path.open("rb") as file:
            file.seek(position)
            block = marshal.load(file)  # noqa: S302  # written above, in a private folder
            position = file.tell()
        yield from block


def chunks(
    lines: Iterable[tuple[T, K, bytes]],
    until: Callable[[T], T],
    chunk_of: Callable[[T, K, bytes], LogChunk],
) -> Iterator[LogChunk]:
    """Joins consecutive lines of one source and almost the same time.

    Args:
        lines: the lines.
        until: returns the time, exclusive, up to which lines join one of the given time.
        chunk_of: makes a chunk from the time of its first line, the source, and the data.
    """
    held: list[bytes] = []
    first: tuple[T, K, T] | None = None  # the time and the source of the first line, and the limit
    size = 0
    for time, source, data in lines:
        if first is not None and (source != first[1] or time >= first[2] or size > BLOCK):
            yield chunk_of(first[0], first[1], b"".join(held))
            first, held, size = None, [], 0
        if first is None:
            first = time, source, until(time)
        held.append(data)
        size += len(data)
    if first is not None:
        yield chunk_of(first[0], first[1], b"".join(held))


class Position(Generic[T]):
    """The position up to which a log was read, to read it again from the time of its last line.

    Attributes:
        last: the time of the last line that was passed to :meth:`note`; None before the first one.
    """

    def __init__(self) -> None:
        self.last: T | None = None
        self._same = 0  # number of lines with this time
        self._source: object = None  # of the last line
        self._begun = bytearray()  # the last line, if it had no end yet: it may continue
        self._skip = 0

    def note(self, line: tuple[T, object, bytes]) -> None:
        """Records that a line was returned to the caller."""
        time, source, data = line
        continues = bool(self._begun) and (time, source) == (self.last, self._source)
        if not continues:
            if time == self.last:
                self._same = self._same + 1
            else:
                self._same = 1
        self.last, self._source = time, source
        if data.endswith(b"\n") or not continues:
            self._begun = bytearray()
        if not data.endswith(b"\n"):
            self._begun += data

    def resume(self) -> None:
        """Prepares for lines that were read before: those from the time of the last line on."""
        self._skip = self._same

    @property
    def is_resuming(self) -> bool:
        """True until all lines that were read before are skipped."""
        return self._skip > 0

    def fresh(self, line: tuple[T, K, bytes]) -> tuple[T, K, bytes] | None:
        """Returns a line, the part of it that was written since, or None if it was read before."""
        time, source, data = line
        if not self._skip or self.last is None:
            return line
        if time > self.last:
            self._skip = 0
            return line
        if time < self.last:
            return None
        self._skip -= 1
        if not self._skip and self._begun and data.startswith(self._begun):
            rest = data[len(self._begun) :]
            if rest:
                return (time, source, rest)
            return None
        return None
