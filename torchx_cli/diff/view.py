"""Show the comparison of two applications as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from torchx.printable import one_line, printable
from torchx_cli.diff.sections import Side
from torchx_cli.diff.values import HIDDEN, Difference, Section
from torchx_cli.terminal.output import (
    columns,
    fit,
    padded,
    paint,
    paint_state,
    supports_unicode,
    width_of,
    wrap,
    wrap_value,
)
from torchx_cli.terminal.times import ago

if TYPE_CHECKING:
    from torchx_cli.diff.trees import TreeDiff

MOST_SHOWN = 30
"""Number of differences of a section that are shown."""

LONGEST_LINE = 100
"""Columns of a line with both values, without a window."""


def lines_of(a: Side, b: Side, sections: Sequence[Section], stream: TextIO) -> Iterator[str]:
    """Yields the lines of a comparison.

    Args:
        a: the first application.
        b: the second.
        sections: the sections.
        stream: the output stream.
    """
    yield _head("-", "bad", a, stream)
    yield _head("+", "good", b, stream)
    for section in sections:
        yield from _section_lines(section, _shown_differences(section, sections), stream)
    equal = [section.name for section in sections if section.is_equal and not section.differences]
    if equal:
        yield wrap(f"equal: {', '.join(equal)}", stream)
    for reason in dict.fromkeys(section.missing for section in sections if section.missing):
        names = ", ".join(section.name for section in sections if section.missing == reason)
        yield wrap(f"not compared: {names} ({one_line(reason)})", stream)


def _section_lines(section: Section, differences: Sequence[Difference], stream: TextIO) -> Iterator[str]:
    if differences or section.notes:
        yield paint(section.name, "bold", stream)
    shown = differences[:MOST_SHOWN]
    width = max((columns(one_line(each.name)) for each in shown), default=0)
    for each in shown:
        yield from _difference(each, min(width, 32), stream)
    more = len(differences) - len(shown)
    if more:
        yield paint(f"  {more} more are not shown (list them with -o json)", "dim", stream)
    for text in section.notes:
        yield wrap(paint(f"note: {one_line(text)}", "dim", stream), stream, "  ")


def _shown_differences(section: Section, sections: Sequence[Section]) -> list[Difference]:
    """Returns the differences of a section; those of the program without those of the arguments."""
    if section.name != "program":
        return section.differences
    arguments = {
        (each.a, each.b) for other in sections for each in other.differences if other.name == "arguments"
    }
    return [each for each in section.differences if (each.a, each.b) not in arguments]


def _head(sign: str, meaning: str, side: Side, stream: TextIO) -> str:
    described = side.described
    if described.submitted_at is None:
        submitted = ""
    else:
        submitted = f"  {ago(described.submitted_at)}"
    name = fit(one_line(side.handle), width_of(stream) and (width_of(stream) or 0) - 2)
    line = f"{paint(f'{sign} {name}', meaning, stream)}"
    rest = f"{described.state.name}{submitted}"
    window = width_of(stream)
    fits = window is None or columns(f"{sign} {name}  {rest}") <= window
    return line + ("  " if fits else "\n    ") + f"{paint_state(described.state.name, stream)}{submitted}"


def _difference(each: Difference, width: int, stream: TextIO) -> Iterator[str]:
    name = one_line(each.name)
    if each.b == HIDDEN:
        yield f"  {padded(name, width)}  {HIDDEN}"
        return
    a, b = (_text(value) for value in (each.a, each.b))
    arrow = "→" if supports_unicode(stream) else "->"
    start = f"  {padded(name, width)}  "
    room = (width_of(stream) or LONGEST_LINE) - columns(start)
    if "\n" not in a + b and columns(f"{a} {arrow} {b}") <= room:
        yield f"{start}{paint(a, 'bad', stream)} {arrow} {paint(b, 'good', stream)}"
        return
    yield f"  {name}"
    for sign, text, meaning in (("-", a, "bad"), ("+", b, "good")):
        yield f"    {paint(sign, meaning, stream)} {wrap_value(text, 6, stream)}"


def _text(value: str | None) -> str:
    if value is None:
        return "(none)"
    return printable(value) or "(empty)"


def source_lines(found: TreeDiff, stream: TextIO) -> Iterator[str]:
    """Yields a unified diff in the colours of its lines, and the parts that are missing."""
    for line in found.text.splitlines():
        meaning = _MEANINGS.get(line[:1], "")
        if line.startswith(("--- ", "+++ ", "diff ")):
            meaning = "bold"
        yield paint(printable(line), meaning, stream)
    yield from (wrap(paint(f"note: {one_line(text)}", "dim", stream), stream) for text in found.missing)


_MEANINGS = {"-": "bad", "+": "good", "@": "dim"}
