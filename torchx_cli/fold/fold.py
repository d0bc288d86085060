"""Find equal lines of several sources.

The lines of each source keep their order, so the output can be unfolded to the log of each source. For this,
each group of equal lines has a *place*, and a line joins a group only behind the groups of the earlier lines
of its source. A new group is placed at the end. When its source later joins a group that is before it, it is
moved to the place before that group, unless another source has joined it in the meantime.
"""

from __future__ import annotations

import heapq
import math
import operator
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from typing import NamedTuple

from torchx.scheduling.logs import LogChunk, Stream
from torchx_cli.fold.sources import Source, Sources

MOST_LINES = 1 << 15
"""Maximum number of different lines that wait for equal ones."""


@dataclass
class Groups:
    """The groups of each line: the number of the last one, and of all if there are several."""

    last: dict[bytes, int] = field(default_factory=dict)
    several: dict[bytes, list[int]] = field(default_factory=dict)

    def again(self, line: bytes, number: int, base: int) -> None:
        """Adds a further group of a line; ``base`` is the first one that is left."""
        known = self.several.setdefault(line, [self.last[line]])
        known.append(number)
        if known[len(known) // 2] < base:
            del known[: bisect_left(known, base)]

    def forget(self, lines: Iterable[bytes], numbers: Iterable[int]) -> None:
        """Forgets lines whose last group was yielded."""
        last, several = self.last, self.several
        if not several:
            deque(map(last.pop, lines, repeat(None)), maxlen=0)
            return
        for line, number in zip(lines, numbers, strict=True):
            if last.get(line) == number:
                del last[line]
                several.pop(line, None)


@dataclass
class Reader:
    """A source.

    Attributes:
        bit: its bit in masks.
        groups: the groups of its kind of lines.
        cursor: the place behind which its next line may join a group.
        free: the groups that it began since, and that may be moved.
        begun: the last group that it began, for lines with several groups.
    """

    bit: int
    groups: Groups
    cursor: float = -1.0
    free: list[int] = field(default_factory=list)
    begun: dict[bytes, int] = field(default_factory=dict)

    def begin(self, line: bytes, number: int, base: int) -> None:
        """Notes a further group of a line in this source; ``base`` is the first one that is left."""
        self.begun[line] = number
        if len(self.begun) > 2 * MOST_LINES:
            self.begun = {known: at for known, at in self.begun.items() if at >= base}


WINDOW = 0.5
"""Seconds during which equal lines are folded; with -f, no line is delayed for longer."""

MOST_BYTES = 8 << 20
"""Maximum size of the chunks whose lines wait for equal ones."""

LONGEST_PART = 1 << 16
"""Bytes after which an unfinished line is passed on in parts."""


class Run(NamedTuple):
    """Consecutive lines that the same sources have printed.

    Attributes:
        mask: the sources, a bit for each.
        time: the time of the first one, in seconds since the epoch; 0.0 if unknown.
        lines: the lines, without ranks and line ends; an unfinished line ends with a line feed.
    """

    mask: int
    time: float
    lines: list[bytes]


class _Mark(NamedTuple):
    """Lines that came first in one chunk, up to a number; their time, their arrival and the chunk's size."""

    end: int
    time: float
    arrival: float
    size: int


class _Unfinished(NamedTuple):
    """The unfinished line of a stream, its time and its arrival."""

    chunk: LogChunk
    data: bytes
    time: float
    arrival: float


class Fold:
    """Groups equal lines that are printed within :data:`WINDOW`."""

    def __init__(self) -> None:
        self.sources = Sources()
        # of each group, by its number: its line, its sources (0: gone), its time and its place
        self._lines: list[bytes] = []
        self._masks: list[int] = []
        self._times: list[float] = []
        self._places: list[float] = []
        self._base = 0  # the number of the first group in the lists
        self._first = 0  # the number of the first group that is left
        self._moved: list[tuple[float, int]] = []  # a heap of places and numbers
        self._marks: deque[_Mark] = deque()
        self._size = 0
        self._groups: dict[tuple[Stream, tuple[bytes, ...]], Groups] = {}
        self._readers: list[Reader] = []  # by the number of the source
        self._unfinished: dict[tuple[str, int, Stream], _Unfinished] = {}

    def add(self, chunk: LogChunk, now: float) -> Iterator[Run]:
        """Adds a chunk; yields the runs that no line can join any more.

        Args:
            chunk: the chunk.
            now: the time of its arrival, by a monotonic clock.
        """
        if chunk.time:
            yield from self._take_while(lambda mark: 0.0 < mark.time < chunk.time - WINDOW)
        data, time = chunk.data, chunk.time
        stream = (chunk.role, chunk.replica, chunk.stream)
        before = self._unfinished.pop(stream, None)
        if before is not None and before.chunk.attempt != chunk.attempt:
            self._end_part(before)
        elif before is not None:
            data, time, now = before.data + data, before.time, before.arrival
        body, newline, rest = data.rpartition(b"\n")
        if newline:
            self._add(chunk, body, time, now)
        if rest:
            part = _Unfinished(chunk, rest, chunk.time if newline else time, now)
            if len(rest) < LONGEST_PART:
                self._unfinished[stream] = part
            else:
                self._end_part(part)
        while self._end - self._first > MOST_LINES or self._size > MOST_BYTES:
            yield from self._take(self._marks.popleft())

    def due(self, now: float) -> Iterator[Run]:
        """Yields the runs that have waited for :data:`WINDOW`."""
        self._end_parts(now - WINDOW)
        yield from self._take_while(lambda mark: mark.arrival <= now - WINDOW)

    def next_due(self) -> float | None:
        """Returns the time at which the next run is due, or None."""
        times = [part.arrival for part in self._unfinished.values()]
        if self._marks:
            times += [self._marks[0].arrival]
        if times:
            return min(times) + WINDOW
        return None

    def rest(self) -> Iterator[Run]:
        """Yields all remaining runs."""
        self._end_parts(math.inf)
        yield from self._take_while(lambda mark: True)

    # --- adding ----------------------------------------------------------------------------------

    def _end_parts(self, arrived: float) -> None:
        for stream, part in list(self._unfinished.items()):
            if part.arrival <= arrived:
                del self._unfinished[stream]
                self._end_part(part)

    def _end_part(self, part: _Unfinished) -> None:
        """Adds an unfinished line; its later parts are lines of their own."""
        self._add(part.chunk, part.data, part.time, part.arrival, b"\n")

    def _add(self, chunk: LogChunk, body: bytes, time: float, now: float, end: bytes = b"") -> None:
        ranked = self.sources.ranked(chunk, body)
        if ranked is None:
            reader = self._reader(self.sources.of_chunk(chunk))
            lines = [body + end] if end else body.split(b"\n")
            if not self._append_all(reader, lines):
                self._join(reader, lines)
        else:
            for source, pairs in groupby(ranked, _SOURCE):
                self._join(self._reader(source), [line + end for _, line in pairs])
        end_of_all = self._end
        count = end_of_all - (self._marks[-1].end if self._marks else self._first)
        if count:
            self._times += [time] * count
            self._marks.append(_Mark(end_of_all, time, now, len(body)))
            self._size += len(body)

    @property
    def _end(self) -> int:
        """The number of the next group."""
        return self._base + len(self._lines)

    def _reader(self, source: Source) -> Reader:
        while source.number >= len(self._readers):
            new = self.sources.known[len(self._readers)]
            groups = self._groups.setdefault((new.stream, new.names), Groups())
            self._readers.append(Reader(1 << new.number, groups))
        return self._readers[source.number]

    def _append_all(self, reader: Reader, lines: list[bytes]) -> bool:
        """Adds lines to new groups if there are many and all are new; returns False otherwise."""
        last = reader.groups.last
        if len(lines) < _MANY or not last.keys().isdisjoint(lines):
            return False
        before, number = len(last), self._end
        numbers = list(range(number, number + len(lines)))
        last.update(zip(lines, numbers, strict=True))
        if len(last) < before + len(lines):  # some are equal
            deque(map(last.pop, lines, repeat(None)), maxlen=0)
            return False
        self._lines += lines
        self._masks += [reader.bit] * len(lines)
        self._places += numbers
        reader.free += numbers
        if len(reader.free) > 2 * MOST_LINES:
            del reader.free[: bisect_left(reader.free, self._first)]
        return True

    def _join(self, reader: Reader, lines: Iterable[bytes]) -> None:
        """Adds each line of a source to the next group that has it, or to a new one."""
        known, masks, places, base = self._lines, self._masks, self._places, self._base
        groups, bit, cursor, free = reader.groups, reader.bit, reader.cursor, reader.free
        last, several, find = groups.last, groups.several, groups.last.get
        number = base + len(known)
        for line in lines:
            at = find(line)
            if at is not None:
                reader.cursor = cursor
                if several and line in several:
                    at = self._next(several[line], reader, line)
                mask, place = masks[at - base], places[at - base]
                joins = place > cursor and not mask & bit
                if joins and free:
                    joins = self._move(reader, place)
                    cursor, free = reader.cursor, reader.free
                if joins:
                    masks[at - base] = mask | bit
                    cursor = place
                    continue
                groups.again(line, number, self._first)
                reader.begin(line, number, self._first)
            last[line] = number
            known.append(line)
            masks.append(bit)
            places.append(number)
            free.append(number)
            number += 1
        reader.cursor = cursor

    def _next(self, numbers: list[int], reader: Reader, line: bytes) -> int:
        """Returns the first of the groups of a line that a source may join, or else the last one."""
        places, masks, base = self._places, self._masks, self._base
        first = bisect_left(numbers, max(self._first, reader.begun.get(line, -1) + 1))
        at = bisect_right(numbers, reader.cursor, first, key=lambda number: places[number - base])
        while at < len(numbers) - 1 and (not (mask := masks[numbers[at] - base]) or mask & reader.bit):
            at += 1
        return numbers[min(at, len(numbers) - 1)]

    def _move(self, reader: Reader, before: float) -> bool:
        """Moves the free groups of a source to the place before a group, if possible."""
        masks, places, base = self._masks, self._places, self._base
        free: list[int] = []
        begin = max(reader.cursor, math.ceil(before) - 1.0)
        for number in reversed(reader.free):
            mask = 0
            if number >= self._first:
                mask = masks[number - base]
            if (
                number < before or mask != reader.bit
            ):  # it is before that group, gone, or of other sources too
                if mask:
                    begin = max(begin, places[number - base])
                break
            free.append(number)
        if begin >= before:
            reader.cursor, reader.free = begin, free[::-1]
            return False
        step = (before - begin) / (len(free) + 1)
        if free and not begin < begin + step <= begin + len(free) * step < before:
            return False  # the numbers are too close
        for position, number in enumerate(reversed(free), 1):
            places[number - base] = begin + position * step
            heapq.heappush(self._moved, (places[number - base], number))
        reader.free = []
        return True

    # --- taking ----------------------------------------------------------------------------------

    def _take_while(self, wanted: Callable[[_Mark], bool]) -> Iterator[Run]:
        while self._marks and wanted(self._marks[0]):
            yield from self._take(self._marks.popleft())

    def _take(self, mark: _Mark) -> Iterator[Run]:
        """Yields and forgets the groups up to a mark."""
        base, first, end = self._base, self._first - self._base, mark.end - self._base
        order: Sequence[int] = range(first, end)
        if self._moved and self._moved[0][0] < mark.end:
            moved: set[int] = set()
            while self._moved and self._moved[0][0] < mark.end:
                moved.add(heapq.heappop(self._moved)[1] - base)
            order = sorted(moved.union(order), key=self._places.__getitem__)
            lines = [self._lines[at] for at in order]
            masks = [self._masks[at] for at in order]
            times = [self._times[at] for at in order]
            for at in moved:
                self._masks[at] = 0
        else:
            lines, masks, times = self._lines[first:end], self._masks[first:end], self._times[first:end]
        self._first, self._size = mark.end, self._size - mark.size
        if end > MOST_LINES or self._first == self._end:  # not each time: the others are moved
            del self._lines[:end], self._masks[:end], self._times[:end], self._places[:end]
            self._base = mark.end
        begin = 0
        for mask, time, length in _lengths(masks, times):
            end = begin + length
            if mask:
                run = lines[begin:end]
                groups = self._readers[(mask & -mask).bit_length() - 1].groups
                groups.forget(run, (base + at for at in order[begin:end]))
                yield Run(mask, time, run)
            begin = end


def _lengths(masks: list[int], times: list[float]) -> Iterator[tuple[int, float, int]]:
    """Yields consecutive equal values, and their number."""
    if masks.count(masks[0]) == times.count(times[0]) == len(masks):
        yield masks[0], times[0], len(masks)
        return
    for (mask, time), group in groupby(zip(masks, times, strict=True)):
        yield mask, time, len(list(group))


_SOURCE = operator.itemgetter(0)
_MANY = 8
"""Minimum number of lines of a source that are compared with all others in one step."""
