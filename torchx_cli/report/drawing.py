"""Draw plots and timelines as SVG elements; all text is outside of them, so that it keeps its size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchx.printable import memory_size
from torchx_cli.report.html import Element, element
from torchx_cli.report.series import Plot, Values
from torchx_cli.terminal.times import duration
from torchx_cli.terminal.units import cores, percent, size

MEMORY = ("memory", "gpu_memory")
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


def amount(key: str, value: float | None) -> str:
    """Formats a value of a measurement.

    >>> amount("cpu", 3.14159), amount("memory", 2 << 20), amount("gpu", 0.5), amount("output", 12.0)
    ('3.1 cores', '2 MiB', '50%', '12 B/s')
    """
    if value is None:
        return "-"
    if key == "cpu":
        return f"{cores(value)} cores"
    if key == "gpu":
        return percent(value)
    if key in MEMORY:
        return memory_size(round(value))
    return f"{size(round(value))}/s"


def top_of(key: str, largest: float) -> float:
    """Returns the upper end of the axis: a round number that is not less than the largest value.

    >>> top_of("cpu", 3.2), top_of("gpu", 0.3), top_of("memory", 41 << 30) / (1 << 30)
    (4.0, 1.0, 50.0)
    """
    if key == "gpu" or largest <= 0:
        return 1.0
    unit = 1 if key not in MEMORY else 1 << 20 if largest < 1000 << 20 else 1 << 30
    step = unit * 10.0 ** math.floor(math.log10(largest / unit))
    return next(step * factor for factor in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if step * factor >= largest)


def plot(drawn: Plot) -> Element:
    """Returns a plot with its title, axis and legend."""
    top = top_of(drawn.key, drawn.largest)
    shapes = [element("path", "", {"class": "grid", "d": f"M0 0H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}"})]
    if drawn.high:
        shapes.append(element("path", "", {"class": "band", "d": band(drawn.low, drawn.high, top)}))
        shapes.append(element("path", "", {"class": "middle", "d": line(drawn.middle, top)}))
    legend = [element("li", f"{drawn.count} replicas: range and median", {"class": "key m"})] * bool(
        drawn.high
    )
    for number, (name, values) in enumerate(drawn.lines.items()):
        shapes.append(element("path", "", {"class": f"line c{number % 8}", "d": line(values, top)}))
        known = [value for value in values if value is not None]
        peak = f"{name}, at most {amount(drawn.key, max(known))}"
        legend.append(element("li", peak, {"class": f"key c{number % 8}"}))
    title = TITLES[drawn.key]
    svg = element(
        "svg", shapes,
        {"viewBox": f"0 -2 {WIDTH} {HEIGHT + 4}", "preserveAspectRatio": "none", "role": "img",
         "aria-label": f"{title} over time"},
    )  # fmt: skip
    axis = [element("span", amount(drawn.key, top)), element("span", "0")]
    times = [element("span", "0 s"), element("span", duration(drawn.end - drawn.begin))]
    return element(
        "figure",
        [
            element("figcaption", title),
            element("div", [element("div", axis, {"class": "axis"}), svg], {"class": "plot"}),
            element("div", times, {"class": "times"}),
            element("ul", legend, {"class": "legend"}),
        ],
    )


def line(values: Values, top: float) -> str:
    """Returns the path of a line, interrupted where values are unknown.

    >>> line([0.0, 1.0, None, 1.0], 1.0)
    'M0 140L333 0M1000 0h2'
    """
    points, path = len(values) - 1, ""
    for at, value in enumerate(values):
        if value is None:
            continue
        begins = at == 0 or values[at - 1] is None
        path += f"{'M' if begins else 'L'}{_x(at, points)} {_y(value, top)}"
        if begins and (at == points or values[at + 1] is None):
            path += "h2"  # a single point
    return path


def band(low: Values, high: Values, top: float) -> str:
    """Returns the path of an area between two lines."""
    points, path, at = len(low) - 1, "", 0
    while at <= points:
        end = at
        while end <= points and low[end] is not None:
            end += 1
        if end > at:
            upper = [f"{_x(k, points)} {_y(high[k] or 0.0, top)}" for k in range(at, end)]
            lower = [f"{_x(k, points)} {_y(low[k] or 0.0, top)}" for k in reversed(range(at, end))]
            path += "M" + "L".join(upper + lower) + "Z"
        at = end + 1
    return path


def _x(at: int, points: int) -> int:
    return round(at * WIDTH / max(1, points))


def _y(value: float, top: float) -> int:
    return round(HEIGHT * (1 - min(1.0, value / top)))


def attempts(replica: Mapping[str, Any], spans: Sequence[tuple[float, float, str, str]]) -> Element:
    """Returns the bars of the attempts of a replica.

    Args:
        replica: the replica.
        spans: begin and end as parts of the whole time, state and description of each attempt.
    """
    bars = [
        element(
            "rect", [element("title", text)],
            {"class": f"bar {state.lower()}", "x": f"{begin * WIDTH:.1f}", "y": "0", "height": "10",
             "width": f"{max(2.0, (end - begin) * WIDTH - 1):.1f}"},
        )
        for begin, end, state, text in spans
    ]  # fmt: skip
    return element(
        "svg", bars,
        {"viewBox": f"0 0 {WIDTH} 10", "preserveAspectRatio": "none", "class": "row", "role": "img",
         "aria-label": f"attempts of {replica['role']}/{replica['id']}"},
    )  # fmt: skip


def counts(running: Sequence[int], total: int) -> Element:
    """Returns the number of running replicas over time as an area."""
    zeros: Values = [0.0] * len(running)
    path = band(zeros, [float(count) for count in running], float(max(1, total)))
    return element(
        "svg", [element("path", "", {"class": "band", "d": path})],
        {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "preserveAspectRatio": "none", "class": "area", "role": "img",
         "aria-label": "running replicas over time"},
    )  # fmt: skip
