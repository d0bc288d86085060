"""Series of measurements on a common grid of time, and their summary over many replicas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchx.json_limits import Data

BINS = 160
"""Number of points of a plot."""

MOST_POINTS = 1000
"""Maximum number of values of a metric that are drawn."""

MOST_LINES = 8
"""Maximum number of replicas whose lines are drawn; of more, the range and the outliers."""

MOST_OUTLIERS = 3
"""Maximum number of replicas drawn beside the range."""

Grid = list[float | None]
Values = Sequence[float | None]


@dataclass
class Plot:
    """A plot of one measurement.

    Attributes:
        key: the name of the measurement in a sample, or of a metric.
        lines: values of single replicas, by name.
        low: the smallest values of all replicas; empty if all replicas have lines.
        middle: the medians.
        high: the largest values.
        count: the number of measured replicas.
        places: the places of the values, from 0 to 1; empty for equal distances.
    """

    key: str
    lines: Mapping[str, Values] = field(default_factory=dict)
    low: Values = ()
    middle: Values = ()
    high: Values = ()
    count: int = 0
    places: Sequence[float] = ()

    @property
    def known(self) -> list[float]:
        """All values that are known."""
        return [v for values in (self.low, self.high, *self.lines.values()) for v in values if v is not None]


def span_of(replicas: Sequence[Data]) -> tuple[float, float] | None:
    """Returns the time range of all samples, None without samples."""
    samples = [sample for replica in replicas for sample in replica.get("samples") or ()]
    if not samples:
        return None
    begin = min(sample["time"] - sample["span"] for sample in samples)
    return begin, max(max(sample["time"] for sample in samples), begin + 1e-3)


def metric_plot(name: str, points: Sequence[Sequence[float]]) -> Plot:
    """Returns the plot of a metric.

    Args:
        name: its name.
        points: places on the axis, in order, each with a value.
    """
    begin, end = points[0][0], points[-1][0]
    shown = points[:: len(points) // MOST_POINTS + 1]
    places = [(place - begin) / ((end - begin) or 1.0) for place, _ in shown]
    return Plot(name, {f"last {points[-1][1]:.6g}": [value for _, value in shown]}, places=places)


def plot_of(key: str, replicas: Sequence[Data], begin: float, end: float) -> Plot | None:
    """Returns the plot of a measurement, None if no replica has it.

    Args:
        key: the name of the measurement in a sample.
        replicas: the attempts of the replicas, each with ``role``, ``replica`` and ``samples``.
        begin: the start of the plot.
        end: its end.
    """
    grids: dict[str, Grid] = {}
    for replica in replicas:
        samples = [sample for sample in replica.get("samples") or () if sample[key] is not None]
        if samples:
            name = f"{replica['role']}/{replica['replica']}"
            fill(grids.setdefault(name, [None] * BINS), samples, key, begin, end)
    if not grids:
        return None
    plot = Plot(key, count=len(grids))
    if len(grids) <= MOST_LINES:
        plot.lines = grids
        return plot
    columns = [_present(column) or [None] for column in zip(*grids.values(), strict=True)]
    plot.low = [column[0] for column in columns]
    plot.middle = [column[len(column) // 2] for column in columns]
    plot.high = [column[-1] for column in columns]
    plot.lines = {name: grids[name] for name in outliers(grids, plot.middle)}
    return plot


def _present(column: Values) -> list[float | None]:
    return [*sorted(value for value in column if value is not None)]


def fill(grid: list[float | None], samples: Iterable[Data], key: str, begin: float, end: float) -> None:
    """Writes the values of samples to the points of a grid that their spans cover; the largest ones win."""
    scale = len(grid) / (end - begin)
    for sample in samples:
        value = sample[key]
        first = max(0, min(len(grid) - 1, int((sample["time"] - sample["span"] - begin) * scale)))
        last = max(first + 1, min(len(grid), round((sample["time"] - begin) * scale)))
        for at in range(first, last):
            before = grid[at]
            if before is None or value > before:
                grid[at] = value


def outliers(grids: Mapping[str, Values], middle: Values) -> list[str]:
    """Returns the replicas that differ most from the median, if they differ much more than is usual."""
    distances = {
        name: sum(abs(v - m) for v, m in zip(values, middle, strict=True) if v is not None and m is not None)
        for name, values in grids.items()
    }
    usual = sorted(distances.values())[len(distances) // 2]
    floor = 0.02 * sum(abs(value) for value in middle if value is not None)
    far = [name for name, distance in distances.items() if distance > max(4 * usual, floor)]
    return sorted(far, key=lambda name: -distances[name])[:MOST_OUTLIERS]
