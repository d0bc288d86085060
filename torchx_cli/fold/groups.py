"""The groups of equal lines that wait for more, by line and by source."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat

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
