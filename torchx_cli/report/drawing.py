"""Draw plots and timelines as SVG elements; all text is outside of them, so that it keeps its size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from torchx.printable import memory_size
from torchx_cli.report.html import Element, element
from torchx_cli.report.series import Plot, Values
from torchx_cli.terminal.units import cores, percent, rate

MEMORY = ("memory", "gpu_memory")
Axis = tuple[float, float]
"""The values at the lower and the upper end of an axis."""

WIDTH, HEIGHT = 1000, 140
"""The coordinates of a plot, which is stretched to its place on the page."""

TITLES = {
    "cpu": "CPU",
    "memory": "Memory",
    "gpu": "GPU utilisation",
    "gpu_memory": "GPU memory",
    "output": "Output",
}
"""Measurement -> the title of its plot."""


def amount(key: str, value: float) -> str:
    """Formats a value of a measurement or of a metric.

    >>> amount("cpu", 3.14159), amount("memory", 2 << 20), amount("gpu", 0.5), amount("output", 12.0)
    ('3.1 cores', '2 MiB', '50%', '12 B/s')
    """
    if key not in TITLES:
        return f"{value:.6g}"
    if key == "cpu":
        return f"{cores(value)} cores"
    if key == "gpu":
        return percent(value)
    if key in MEMORY:
        return memory_size(round(value))
    return rate(value)


def axis_of(key: str, low: float, high: float) -> Axis:
    """Returns the ends of an axis: round numbers beside the smallest and the largest value.

    The axis of a measurement begins at 0, unless its values would use less than half of it, and differ.

    >>> axis_of("cpu", 0.5, 3.21), axis_of("loss", 0.9912, 0.9998)
    ((0.0, 3.3), (0.9912, 0.9998))
    >>> axis_of("loss", 7, 7), axis_of("output", 0, 0), axis_of("output", 70, 100), axis_of("output", 99, 100)
    ((0.0, 7.0), (0.0, 1.0), (70.0, 100.0), (0.0, 100.0))
    """
    if low == high or (key in TITLES and not 0.5 * high <= low <= 0.8 * high):
        low, high = min(0.0, low), max(0.0, high)
    span = (high - low) or 1.0
    step = 10.0 ** math.floor(math.log10(span)) / 10
    return round(math.floor(low / step) * step, 12), round(math.ceil(max(high, low + span) / step) * step, 12)


def plot(drawn: Plot, ends: Iterable[str]) -> Element:
    """Returns a plot with its title, axis and legend, and texts for both ends of its time."""
    axis = axis_of(drawn.key, min(drawn.known), max(drawn.known))
    shapes = [element("path", "", {"class": "grid", "d": f"M0 0H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}"})]
    legend = []
    if drawn.high:
        legend.append(element("li", f"{drawn.count} replicas: range and median", {"class": "key m"}))
        shapes.append(element("path", "", {"class": "band", "d": band(drawn.low, drawn.high, axis)}))
        shapes.append(element("path", "", {"class": "middle", "d": line(drawn.middle, axis)}))
    for number, (name, values) in enumerate(drawn.lines.items()):
        path = line(values, axis, drawn.places)
        shapes.append(element("path", "", {"class": f"line c{number % 8}", "d": path}))
        largest = max(value for value in values if value is not None)
        peak = f"{name}, at most {amount(drawn.key, largest)}"
        legend.append(element("li", peak, {"class": f"key c{number % 8}"}))
    title = TITLES.get(drawn.key, drawn.key)
    svg = _svg(shapes, HEIGHT, title, "lines")
    labels = [amount(drawn.key, end) if end else "0" for end in reversed(axis)]
    return element(
        "figure",
        [
            element("figcaption", title),
            element("div", [captions(labels, "axis"), svg], {"class": "plot"}),
            captions(ends, "times"),
            element("ul", legend, {"class": "legend"}),
        ],
    )


def captions(texts: Iterable[str], kind: str) -> Element:
    """Returns texts beside or below each other."""
    return element("div", [element("span", text) for text in texts], {"class": kind})


def line(values: Values, axis: Axis, places: Sequence[float] = ()) -> str:
    """Returns the path of a line, interrupted where values are unknown.

    Args:
        values: its values.
        axis: the ends of its axis.
        places: their places, from 0 to 1 (default: at equal distances).

    >>> line([0.0, 1.0, None, 1.0], (0.0, 1.0))
    'M0 140L333 0M1000 0h2'
    >>> line([4.0, 5.0, 5.0], (4.0, 6.0), [0.0, 0.2, 1.0])
    'M0 140L200 70L1000 70'
    """
    places = places or [at / max(1, len(values) - 1) for at in range(len(values))]
    path = ""
    for part in _known(values):
        points = [f"{round(places[at] * WIDTH)} {_y(values[at] or 0.0, axis)}" for at in part]
        path += "M" + "L".join(points) + "h2" * (len(part) == 1)
    return path


def _known(values: Values) -> list[list[int]]:
    """Returns the positions of the values that are known, those in a row together."""
    parts = groupby(range(len(values)), key=lambda at: values[at] is not None)
    return [list(part) for is_known, part in parts if is_known]


def band(low: Values, high: Values, axis: Axis) -> str:
    """Returns the path of an area between two lines."""
    path = ""
    for part in _known(low):
        area = [*((at, high[at]) for at in part), *((at, low[at]) for at in reversed(part))]
        points = [f"{round(at * WIDTH / (len(low) - 1))} {_y(value or 0.0, axis)}" for at, value in area]
        path += "M" + "L".join(points) + "Z"
    return path


def _y(value: float, axis: Axis) -> int:
    bottom, top = axis
    return round(HEIGHT * (top - value) / (top - bottom))


def attempts(replica: Mapping[str, Any], spans: Sequence[tuple[float, float, str, str]]) -> Element:
    """Returns the bars of the attempts of a replica.

    Args:
        replica: the replica.
        spans: begin and end as parts of the whole time, state and description of each attempt.
    """
    bars = [
        element(
            "rect",
            [element("title", text)],
            {
                "class": f"bar {state.lower()}",
                "x": f"{begin * WIDTH:.1f}",
                "y": "0",
                "height": "10",
                "width": f"{max(2.0, (end - begin) * WIDTH - 1):.1f}",
            },
        )
        for begin, end, state, text in spans
    ]
    return _svg(bars, 10, f"attempts of {replica['name']}", "row")


def counts(running: Sequence[int], total: int) -> Element:
    """Returns the number of running replicas over time as an area."""
    zeros: Values = [0.0] * len(running)
    path = band(zeros, [float(count) for count in running], (0.0, float(max(1, total))))
    return _svg(
        [element("path", "", {"class": "band", "d": path})], HEIGHT, "running replicas over time", "area"
    )


def _svg(shapes: Iterable[Element], height: int, label: str, kind: str) -> Element:
    attributes = {"viewBox": f"0 0 {WIDTH} {height}", "preserveAspectRatio": "none", "role": "img"}
    return element("svg", shapes, {**attributes, "aria-label": label, "class": kind})
