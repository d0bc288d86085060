"""Wrap values and command lines to the window of a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from torchx.lazy import lazy_imports
from torchx.printable import one_line, printable
from torchx_cli.terminal.output import LONGEST, columns, filled, plain, width_of

with lazy_imports:
    import shlex


def wrap_value(value: str, indent: int, stream: TextIO) -> str:
    """Returns a value that follows a label, wrapped to the window below its first line.

    A path that does not fit beside the label begins a line of its own.

    Args:
        value: the value; each of its lines is wrapped.
        indent: the columns before the value.
        stream: the output stream.
    """
    value, window = printable(value), width_of(stream)
    below = "\n" + " " * indent
    if (
        window is None
        or len(value) > LONGEST
        or all(columns(v) <= window - indent for v in value.split("\n"))
    ):
        return value.replace("\n", below)

    if max(20, *map(columns, value.split())) > window - indent:
        indent = 4
        below = "\n" + " " * indent
        value = f"\n{value}"
    lines = [filled(line, window - indent) or [""] for line in value.split("\n")]
    return below.join(part for parts in lines for part in parts)


def wrap_command(start: str, command: str, stream: TextIO) -> str:
    """Returns a command line wrapped to the window of a stream, so that a shell still runs it.

    Args:
        start: printed before the command; may be painted.
        command: the command line, quoted for a shell.
        stream: the output stream.
    """
    arguments: Sequence[str] = ()
    with suppress(ValueError):  # of another program
        arguments = shlex.split(command)
    if "\n" in command:
        command = " ".join(map(_quoted, arguments)) or one_line(command)
    window = width_of(stream)
    fits = window is None or len(command) > LONGEST or columns(plain(start) + command) <= window
    if window is None or fits or not arguments:
        return start + command

    room, line, used = max(10, window - 6), start, columns(plain(start))
    for number, argument in enumerate(arguments):
        word = _quoted(argument)
        if columns(word) > room and " " in argument:  # the shell joins the parts, which start their lines
            word = "\\\n".join(map(_quoted, _parts(argument, room)))
        separator = " " if number else ""
        first = word.partition("\n")[0]
        if number and used + columns(first) + 3 > window:
            separator, used = " \\\n    ", 3
        line += separator + word
        used = columns(word.rpartition("\n")[2]) + (0 if "\n" in word else used + 1)
    return line


def _quoted(argument: str) -> str:
    r"""Returns an argument quoted for a shell; with line feeds in the form of bash and zsh, on one line.

    >>> _quoted("a b"), _quoted("it's\n")
    ("'a b'", "$'it\\'s\\n'")
    """
    if "\n" not in argument:
        return shlex.quote(argument)
    escaped = argument.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def _parts(text: str, room: int) -> list[str]:
    """Splits a text after spaces into parts of at most a number of columns, if spaces allow it.

    >>> _parts("echo one two", 10)
    ['echo one ', 'two']
    """
    parts = [""]
    for piece in text.split(" "):
        if parts[-1] and columns(parts[-1] + piece) + 2 > room:
            parts.append("")
        parts[-1] += f"{piece} "
    parts[-1] = parts[-1][:-1]
    return parts
