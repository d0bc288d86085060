"""The rule by which a rank is a straggler: pure functions of the steps that ranks have reported.

A rank is compared with the median rank. It *falls behind* if it makes fewer steps. It is *late* if the ranks
wait for each other at each step, and it is the one that they wait for: then all have the same step, and only
the times differ. Nodes of batch systems run a copy of this file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

WINDOW = 10
"""A rank is judged by its last steps: this many times the number of steps of the rule."""

LATE = 0.1
"""Least share of a step by which a rank is late on average."""

SLOWER = 0.05
"""Least share by which a step of a rank that falls behind takes longer than one of the median rank."""

CERTAIN = 5.0
"""Least mean, in its standard errors."""

LOOSE = 1.0
"""Least ratio of the squared change between two steps to the variance of a lag. It is about 2 if the lag of
each step is its own, and near 0 if it comes from the step before: then ranks do not wait for each other."""

TOGETHER = 0.9
"""Least share of steps that no rank begins before all have ended the last one."""

BRIEF = 1.0
"""Seconds behind the median that are not reported, however many steps they are."""

TINY = 0.002
"""Seconds of a step that are not reported."""


class Mean:
    """The mean and the variance of the last values.

    Attributes:
        count: the number of values, at most the window.
        mean: their mean.
        variance: their variance.
    """

    __slots__ = ("count", "mean", "variance")

    def __init__(self) -> None:
        self.count, self.mean, self.variance = 0, 0.0, 0.0

    def add(self, value: float, window: int) -> None:
        """Adds a value; the weight of earlier ones falls once there are more than the window."""
        self.count = min(self.count + 1, window)
        share = 1.0 / self.count
        change = value - self.mean
        self.mean += share * change
        self.variance = (1.0 - share) * (self.variance + share * change * change)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float((self.variance / max(self.count, 1)) ** 0.5)


class Rank:
    """The progress of one rank.

    Attributes:
        step: its last step.
        at: the time of it.
        own: the durations of its steps, in those of the median rank; at most 2.
        late: how late it was at each step, in durations of a step; at most 1.
        change: the squared changes of that between two steps.
        behind: the steps between its last one and that of the median rank.
        base: these steps when it was first compared, or has recovered.
        is_new: whether it was not compared yet.
        text: why it is a straggler; empty for others.
    """

    __slots__ = ("at", "base", "behind", "change", "is_new", "last", "late", "own", "step", "text")

    def __init__(self, at: float, step: int) -> None:
        self.at, self.step, self.behind, self.base, self.text = at, step, 0, 0, ""
        self.is_new = True
        self.own, self.late, self.change = Mean(), Mean(), Mean()
        self.last: tuple[int, float] | None = None  # a step, and how late it was


class Comparison:
    """Compares the ranks of one role.

    Args:
        steps: the number of steps of the rule; 0 to find no stragglers.
        skew: the most seconds by which the clocks of two ranks may differ.

    Attributes:
        ranks: the ranks that have reported steps, by ordinal of the replica and local rank.
        median: the last step of the median rank.
        pace: the seconds of a step; None if they are not known yet.
    """

    def __init__(self, steps: int, skew: float = 0.0) -> None:
        self._steps = steps or 20
        self._judges = steps > 0
        self._skew = skew
        self._paces: deque[float] = deque(maxlen=5)
        self._together = Mean()
        self._usual = self._usually_late = 0.0
        self._done = -1
        self.ranks: dict[tuple[int, int], Rank] = {}
        self.median = 0
        self.pace: float | None = None

    @property
    def waits(self) -> bool:
        """Whether the ranks wait for each other at each step."""
        return self._together.count >= 3 and self._together.mean >= TOGETHER

    def slowest(self) -> tuple[int, int]:
        """Returns the rank that the others wait for, or the last one if they do not wait."""
        return max(self.ranks, key=lambda key: (self.lag_of(self.ranks[key]), self.ranks[key].behind))

    def lag_of(self, rank: Rank) -> float:
        """Returns the seconds that a rank is late at each step, or by which it is behind the median."""
        if not self.pace:
            return 0.0
        if self.waits:
            return max(rank.late.mean - self._usually_late, 0.0) * self.pace
        return max(rank.behind, 0) * self.pace

    def forget(self, ordinal: int) -> None:
        """Removes the ranks of a replica, whose attempt has ended."""
        self.ranks = {key: rank for key, rank in self.ranks.items() if key[0] != ordinal}

    def update(self, beats: Mapping[tuple[int, int], Sequence[tuple[float, int]]]) -> list[tuple[int, int]]:
        """Handles the last steps of all ranks; returns those that have become stragglers.

        Args:
            beats: the time and the number of the last steps of each rank, in order of time.
        """
        if not beats:
            return []
        self._measure(beats)
        for key, last in beats.items():
            self._follow(key, last)
        steps = sorted(rank.step for rank in self.ranks.values())
        self.median = steps[len(steps) // 2]
        self._compare_times({key: beats[key] for key in beats if len(self.ranks) > 1})
        self._usual = middle([rank.own.mean for rank in self.ranks.values()])
        self._usually_late = middle([rank.late.mean for rank in self.ranks.values()])
        loose = self._is_loose()
        found = []
        for key, rank in self.ranks.items():
            rank.behind = self.median - rank.step
            if rank.is_new:
                rank.base, rank.is_new = rank.behind, False
            text = self._reason(rank, loose)
            if text and not rank.text:
                found.append(key)
            rank.text = text
        return found

    def _measure(self, beats: Mapping[tuple[int, int], Sequence[tuple[float, int]]]) -> None:
        """Measures the duration of a step: the median of the ranks, and of the last checks."""
        usual = []
        for last in beats.values():
            durations = durations_of(last)
            if durations:
                usual.append(middle(durations))
        if usual:
            self._paces.append(middle(usual))
            self.pace = middle(list(self._paces))

    def _follow(self, key: tuple[int, int], last: Sequence[tuple[float, int]]) -> None:
        at, step = last[-1]
        rank = self.ranks.get(key)
        if rank is None or step < rank.step:  # another loop begins
            self._done = min(self._done, step)
            self.ranks[key] = Rank(at, step)
            return
        if self.pace:
            new = [beat for beat in last if beat[0] >= rank.at]
            for duration in durations_of(new):
                rank.own.add(min(duration / self.pace, 2.0), WINDOW * self._steps)
        rank.at, rank.step = at, step

    def _compare_times(self, beats: Mapping[tuple[int, int], Sequence[tuple[float, int]]]) -> None:
        """Compares when the ranks have reached the new steps that all have reached."""
        if not beats or not self.pace:
            return
        newest = min(last[-1][1] for last in beats.values())
        tables = {key: {step: at for at, step in last} for key, last in beats.items()}
        common = set.intersection(*map(set, tables.values()))  # numbers may have large gaps
        before, ended = -1, 0.0
        for step in sorted(step for step in common if step >= self._done):
            times = {key: table[step] for key, table in tables.items()}
            ordered = sorted(times.values())
            if before == step - 1 >= 0:
                self._together.add(float(ended <= ordered[0] + self._skew), WINDOW * self._steps)
            before, ended = step, ordered[-1]
            if step > self._done:
                self._note_times(step, times, ordered[(len(ordered) - 1) // 2])
        self._done = max(self._done, newest)

    def _note_times(self, step: int, times: Mapping[tuple[int, int], float], median: float) -> None:
        assert self.pace
        for key, at in times.items():
            rank = self.ranks[key]
            late = max(min((at - median) / self.pace, 1.0), -1.0)
            rank.late.add(late, WINDOW * self._steps)
            if rank.last is not None and rank.last[0] == step - 1:
                rank.change.add((late - rank.last[1]) ** 2, WINDOW * self._steps)
            rank.last = step, late

    def _reason(self, rank: Rank, loose: bool) -> str:
        """Returns why a rank is a straggler, an empty string for others.

        One that was reported stays one until it has clearly recovered.
        """
        if not self._judges or not self.pace:
            return ""
        slower, late = rank.own.mean - self._usual, rank.late.mean - self._usually_late
        if rank.text:
            if (slower >= SLOWER / 2 and rank.behind > rank.base) or (self.waits and late >= LATE / 2):
                return rank.text
            rank.base = rank.behind
            return ""
        if rank.behind - rank.base >= self._steps and self._is_slower(rank, slower):
            numbers = f"{rank.step:,} of {self.median:,}"
            return f"{rank.behind:,} steps behind the median ({numbers}), {rank.behind * self.pace:.3g} s"
        if self.waits and loose and self._is_late(rank, late):
            return f"{late * self.pace:.2g} s late at each step, {late:.0%} of a step"
        return ""

    def _is_slower(self, rank: Rank, slower: float) -> bool:
        assert self.pace
        lost = (rank.behind - rank.base) * self.pace
        return lost >= BRIEF and slower >= max(SLOWER, CERTAIN * rank.own.error)

    def _is_late(self, rank: Rank, late: float) -> bool:
        assert self.pace
        if rank.late.count < WINDOW * self._steps / 2 or late * self.pace < max(TINY, self._skew):
            return False
        return late >= max(LATE, CERTAIN * rank.late.error)

    def _is_loose(self) -> bool:
        """Returns True if the lag of a step does not come from the step before, in the median rank."""
        ratios = [rank.change.mean / rank.late.variance for rank in self.ranks.values() if rank.late.variance]
        return bool(ratios) and sorted(ratios)[len(ratios) // 2] >= LOOSE


def durations_of(beats: Sequence[tuple[float, int]]) -> list[float]:
    """Returns the seconds of a step between the reported ones.

    >>> durations_of([(1.0, 5), (1.5, 6), (3.5, 10)])
    [0.5, 0.5]
    """
    pairs = zip(beats, beats[1:])  # noqa: B905, RUF007 (Python 3.8)
    return [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairs if b[1] > a[1]]


def middle(values: Sequence[float]) -> float:
    """Returns the median, of an even number of values the lower one.

    >>> middle([3.0, 1.0, 2.0]), middle([2.0, 1.0])
    (2.0, 1.0)
    """
    return sorted(values)[(len(values) - 1) // 2]
