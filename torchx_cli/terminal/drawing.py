"""Draw on a terminal with rich: tables, highlighted text, live views, tracebacks.

Imported only where something is drawn, since the import of rich takes a third of the time of a short command.
External text reaches rich as :class:`rich.text.Text` without control characters, never as markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO, cast

from rich.color import ColorSystem
from rich.console import Console as RichConsole
from rich.console import Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from torchx.printable import one_line, printable
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import (
    LONGEST,
    Row,
    bar_of,
    cells_of,
    has_colour,
    is_terminal,
    shown,
    supports_unicode,
    width_of,
)
from torchx_cli.terminal.times import whole

if TYPE_CHECKING:
    from torchx.scheduling.progress import Ongoing

STYLES = {"good": "green", "bad": "red", "wait": "yellow", "dim": "dim", "bold": "bold"}
"""Meaning -> style, as in :data:`torchx_cli.terminal.output.COLOURS`."""

LONGEST_HIGHLIGHTED = 20_000
"""Characters of a text that are highlighted; its other lines have no colours."""


class Console(RichConsole):
    """A console that never hides the cursor, which a killed process could not restore."""

    @property
    def encoding(self) -> str:
        """ASCII if the stream does not support Unicode, as for all output."""
        if supports_unicode(cast(TextIO, self.file)):
            return "utf-8"
        return "ascii"

    def show_cursor(self, show: bool = True) -> bool:
        """Does nothing."""
        return False


def console_of(stream: TextIO, *, live: bool = False) -> Console:
    """Returns a console on a stream, with colours as for all output.

    Args:
        stream: stdout or stderr.
        live: follow changes of the window size.
    """
    return Console(
        file=stream,
        width=None if live else width_of(stream) or LONGEST,
        force_terminal=is_terminal(stream) or has_colour(stream),
        color_system="standard" if has_colour(stream) else None,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def print_table(rows: Sequence[Row], heads: Sequence[str] = (), indent: int = 0) -> None:
    """Prints a table on stdout, its cells wrapped to the window and with likely secrets masked.

    Args:
        rows: the cells; a line feed begins a new line of a cell.
        heads: the heads of the columns.
        indent: spaces before each line.
    """
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0] if rows else heads:
        table.add_column(overflow="fold")
    for row in ([[(head, "bold") for head in heads]] if heads else []) + list(rows):
        table.add_row(*(_cell(text, meaning) for text, meaning in cells_of(row)))
    _draw(Padding(table, (0, 0, 0, indent)))


def print_options(rows: Sequence[tuple[str, str, str]]) -> None:
    """Prints named options on stdout, each with its type and default, and a description that is wrapped.

    In a narrow window the description is below the name.
    """
    beside = 4 + max((len(name) for name, _, _ in rows), default=0)
    if (width_of(sys.stdout) or LONGEST) - beside >= _NARROWEST:
        print_table([[(name, "bold"), f"{about}\n{kind}"] for name, kind, about in rows], indent=2)
        return
    for name, kind, about in rows:
        print_table([[(name, "bold")]], indent=2)
        print_table([[f"{about}\n{kind}"]], indent=6)


_NARROWEST = 36
"""Minimum columns of a description beside its name."""


def _cell(text: str, meaning: str) -> Text:
    """Returns the first line of a text in the style of its meaning, and the others dim."""
    first, *rest = (one_line(line) for line in mask_text(text).split("\n"))
    return Text("\n").join([Text(first, STYLES.get(meaning, "")), *(Text(line, "dim") for line in rest)])


def _draw(drawing: RenderableType) -> None:
    """Prints a drawing on stdout without spaces at the ends of lines."""
    console = console_of(sys.stdout)
    with console.capture() as captured:
        console.print(drawing)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def highlight(text: str, language: str, stream: TextIO) -> str:
    """Returns printable text with the first lines in the colours of a language.

    Args:
        text: the text; may contain external text.
        language: the name of a lexer of Pygments, such as yaml, json or bash.
        stream: the output stream.
    """
    text = printable(text)
    if len(text) <= LONGEST_HIGHLIGHTED:
        end = len(text)
    else:
        end = text.rfind("\n", 0, LONGEST_HIGHLIGHTED) + 1
    colours = None
    if has_colour(stream):
        colours = ColorSystem.STANDARD
    syntax = Syntax("", language, theme="ansi_dark", tab_size=0)  # 0: keep tabs
    highlighted = syntax.highlight(text[:end])
    if not text[:end].endswith("\n"):
        highlighted.right_crop()  # the line feed that the lexer has added
    drawn = "".join(
        segment.style.render(segment.text, color_system=colours)
        if segment.style and not segment.text.isspace()
        else segment.text
        for segment in highlighted.render(console_of(stream))
    )
    return drawn + text[end:]


class Screen:
    """Lines of a terminal that are updated in place; a context manager that leaves them there.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = console_of(stream, live=True)
        self._live: Live | None = None
        self._lines: list[Text] = []
        self._width = 0

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()  # ends the last line

    def show(self, lines: Sequence[str], *, final: bool = False) -> None:
        """Replaces the displayed lines.

        Args:
            lines: the lines, which may be painted; truncated to the window.
            final: show all lines in full, even if they scroll out of the window.
        """
        size = self._console.size
        lines = [part for line in lines for part in printable(line).split("\n")]
        if not final and len(lines) >= size.height:
            lines = [*lines[: max(1, size.height - 2)], f"  {len(lines) - size.height + 2} more lines"]
        texts = [Text.from_ansi(shown(line)) for line in lines]
        if final or size.width != self._width:
            self.clear()
        self._lines, self._width = texts, size.width
        if final:
            self._console.print(*texts, sep="\n", soft_wrap=True)
            return
        if self._live is None:
            self._live = _live_on(self._console)
            self._live.start()
        self._live.update(_cropped(texts), refresh=True)

    def clear(self) -> None:
        """Removes the displayed lines; in a resized window they are wrapped differently."""
        if self._live is None:
            return
        width = self._console.size.width
        self._live.stop()
        self._live = None
        rows = sum(max(1, -(-line.cell_len // width)) for line in self._lines)
        self._console.control(Control((ControlType.CURSOR_UP, rows), ControlType.CARRIAGE_RETURN))
        self._stream.write("\x1b[J")


def _cropped(lines: Iterable[Text]) -> Text:
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def _live_on(console: Console, *, screen: bool = False) -> Live:
    return Live(
        console=console, screen=screen, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )


class FullScreen:
    """The alternate screen of a terminal; a context manager, which restores the usual one.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = console_of(stream, live=True)
        self._live = _live_on(self._console, screen=True)

    def __enter__(self) -> FullScreen:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    @property
    def size(self) -> tuple[int, int]:
        """The current columns and lines of the window."""
        size = self._console.size
        return size.width, size.height

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the content with lines, which may be painted."""
        self._live.update(_cropped(Text.from_ansi(shown(line)) for line in lines), refresh=True)


MAX_PARTS = 6
"""Maximum number of parts shown."""


def progress_of(ongoing: Ongoing, stream: TextIO) -> Live:
    """Returns a live view of a long operation, which disappears when it is stopped."""
    return Live(
        console=console_of(stream, live=True),
        get_renderable=lambda: _progress(ongoing, bar_of(stream)),
        refresh_per_second=10,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _progress(ongoing: Ongoing, bar: str) -> RenderableType:
    now = ongoing.now
    lines = [f"{now.what}, {whole(ongoing.seconds)}"]
    lines += [
        f"  {where}" for where in [", ".join(part for part in (now.detail, now.bytes) if part)] if where
    ]
    parts = Table.grid(padding=(0, 2, 0, 0))
    moving = [part for part in now.parts if part.name and part.status and part.total]
    for part in moving[:MAX_PARTS]:
        name, status = _shortened(part.name[:12], "dim"), _shortened(part.status, "dim")
        amount = ProgressBar(part.total, part.done, width=20, complete_style="green", finished_style="green")
        parts.add_row("", name, status, amount, _shortened(part.bytes, "dim"))
    last = [_shortened(f"  {bar} {line}", "dim") for line in now.last]
    return Group(*map(_shortened, lines), *([parts] if moving else []), *last)


def _shortened(text: str, style: str = "") -> Text:
    return Text(one_line(mask_text(text)), style, no_wrap=True, overflow="crop")
