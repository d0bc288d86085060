"""Show tables and code: drawn with rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from torchx.lazy import lazy_imports
from torchx.printable import one_line, printable
from torchx_cli.terminal.output import (
    Row,
    cells_of,
    columns,
    fit,
    has_colour,
    is_terminal,
    paint,
    say,
    width_of,
)

with lazy_imports:
    from torchx_cli.terminal import drawing

_ROOM_FOR_LAST = 10
"""Columns of the last cell of a table for which other columns are dropped."""

_ROOM_FOR_FIRST = 8
"""Columns of the first cell of a table that is truncated in a narrow window."""


def table(rows: Sequence[Row], heads: Sequence[str], stream: TextIO, spare: Sequence[str] = ()) -> list[str]:
    """Returns the lines of a table.

    On a terminal the table fits the window: the last column is truncated, columns named in ``spare`` are
    dropped as needed, in that order, and the first column is truncated.
    """
    window, coloured = width_of(stream), has_colour(stream)
    body = [[(head, "bold") for head in heads]]
    body += [
        [(one_line(text), meaning if coloured else "") for text, meaning in cells_of(row)] for row in rows
    ]
    kept = list(range(len(heads)))
    widths = [max([columns(row[at][0]) for row in body]) for at in kept]
    last = min(widths[-1], _ROOM_FOR_LAST)
    room = window or sys.maxsize
    for head in spare:
        if sum(widths[at] + 2 for at in kept[:-1]) + last > room:
            kept.remove(heads.index(head))
    room -= sum(widths[at] + 2 for at in kept[1:-1]) + 2
    room -= last * bool(heads[-1])  # a message, which has no head, may be omitted
    widths[0] = min(widths[0], max(_ROOM_FOR_FIRST, room))
    return [
        _table_line([row[at] for at in kept], [widths[at] for at in kept], window, stream) for row in body
    ]


def show_table(rows: Sequence[Row], heads: Sequence[str]) -> None:
    """Prints a table on stdout, with likely secrets masked; on a terminal its cells are wrapped."""
    if is_terminal(sys.stdout):
        drawing.print_table(
            [[(fit(text, None), meaning) for text, meaning in cells_of(row)] for row in rows], heads
        )
    else:
        say("\n".join(table(rows, heads, sys.stdout)), hide=True)


def show_code(text: str, language: str, stream: TextIO) -> None:
    """Prints a text with its syntax highlighted if the stream has colours.

    Args:
        text: the text, with secrets masked.
        language: yaml, json, bash, or pytb for a traceback.
        stream: stdout or stderr.
    """
    if has_colour(stream):
        text = drawing.highlight(text, language, stream)
    else:
        text = printable(text)
    stream.write(text if text.endswith("\n") else f"{text}\n")


def _table_line(
    cells: Sequence[tuple[str, str]], widths: Sequence[int], window: int | None, stream: TextIO
) -> str:
    line, used = "", 0
    for (text, meaning), width in zip(cells[:-1], widths, strict=False):
        text = fit(text, width)
        if meaning:
            shown = paint(text, meaning, stream)
        else:
            shown = text
        line += shown + " " * (width - columns(text) + 2)
        used += width + 2
    text, meaning = cells[-1]
    if window is None:
        last = text
    else:
        last = fit(text, window - used)
    return (line + paint(last, meaning, stream)).rstrip()
