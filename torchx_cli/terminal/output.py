"""What the program prints: results on stdout, the rest on stderr; colour where there is a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from torchx.errors import UsageError
from torchx.printable import escape_json, has_controls, one_line, printable

COLOURS = {"good": "32", "bad": "31", "wait": "33", "dim": "2", "bold": "1"}
"""Meaning -> the terminal's code for it."""

LONGEST = 2_000
"""Columns of a line of someone else's text where no window limits it."""

_LONGEST_SCANNED = 16
"""Characters per column that :func:`fit` looks at: combining ones take no column, and have no limit."""

_MARK = chr(0xF0000 + int.from_bytes(os.urandom(2), "big") % 0xFFFE)
"""Stands for ESC in painted text until :func:`shown`. Random, so that no text from elsewhere contains it."""

_PAINTED = re.compile(_MARK + r"\[([0-9;]*)m")

STATE_MEANING = {
    "SUCCEEDED": "good",
    "RUNNING": "good",
    "FAILED": "bad",
    "CANCELLED": "wait",
    "PENDING": "wait",
    "SUBMITTED": "wait",
}


def is_terminal(stream: TextIO) -> bool:
    """Tells whether a person reads a stream on a terminal that moves its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def has_colour(stream: TextIO) -> bool:
    """Tells whether a stream shows colour: a terminal, and nobody said NO_COLOR."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def width_of(stream: TextIO) -> int | None:
    """Returns the columns of a stream's window; None where it is no terminal and lines may be long."""
    if not is_terminal(stream):
        return None
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns or 80)
    except OSError:
        return 80


def paint(text: str, meaning: str, stream: TextIO) -> str:
    """Returns a text in the colour of its meaning, unchanged where the stream shows none.

    Only what is printed with :func:`say` or :func:`tell` may be painted.
    """
    code = COLOURS.get(meaning)
    return colour(text, code) if code and text and has_colour(stream) else text


def colour(text: str, code: str) -> str:
    """Returns a text with a colour code of the terminal, to be printed with :func:`say`."""
    return f"{_MARK}[{code}m{text}{_MARK}[0m"


def plain(text: str) -> str:
    """Returns a text without the colours that :func:`paint` gave it."""
    return _PAINTED.sub("", text)


def shown(text: str) -> str:
    r"""Returns a text as it goes to a terminal: control characters are spelled out, colours are set.

    This is the one place where colours become escape sequences.

    >>> shown("title\x1b]0;x\x07"), shown(colour("failed", "31"))
    ('title\\x1b]0;x\\x07', '\x1b[31mfailed\x1b[0m')
    """
    return _PAINTED.sub("\x1b[\\1m", printable(text))


def say(text: str = "", *, end: str = "\n", flush: bool = False, hide: bool = False) -> None:
    """Prints a text on stdout; everything that this program says there goes through here.

    Args:
        text: may hold text from elsewhere, such as names and messages.
        end: what follows it.
        flush: show it immediately.
        hide: mask what looks like a secret.
    """
    if hide:
        from torchx_cli.terminal.masking import mask_text

        text = mask_text(text)
    print(shown(text), end=end, flush=flush)


def paint_state(state: str, stream: TextIO) -> str:
    """Returns the name of a state in its colour."""
    return paint(state, STATE_MEANING.get(state, "dim"), stream)


def speaks_unicode(stream: TextIO) -> bool:
    """Tells whether a stream takes more than ASCII; LANG=C asks for ASCII whatever Python makes of it."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower()
    return locale not in ("C", "POSIX") and encoding.replace("-", "") == "utf8"


def bar_of(stream: TextIO) -> str:
    """Returns the bar between the name of a replica and its line."""
    return "│" if speaks_unicode(stream) else "|"


def columns(text: str) -> int:
    """Returns how many columns of a terminal a text takes.

    >>> columns("abc"), columns("日本")
    (3, 4)
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    from unicodedata import combining, east_asian_width

    return 0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1


def fit(text: str, width: int | None) -> str:
    """Returns a text on one line that is cut, with an ellipsis, to a number of columns; None for no window.

    It takes time by what it returns, not by what it is given.

    >>> fit("a longer text", 8)
    'a long..'
    """
    width = LONGEST if width is None else max(0, width)
    text = text if isinstance(text, str) else one_line(text)  # a plugin may return anything
    scanned = text[: width * _LONGEST_SCANNED + 1]
    line = one_line(scanned)
    used, room = 0, 0  # columns, and the characters before the ellipsis
    for at, character in enumerate(line):
        used += 1 if character.isascii() else _width(character)
        if used > width:
            return line[:room] + ".."[:width]
        if used <= width - 2:
            room = at + 1
    return line if len(scanned) == len(text) else line[:room] + ".."[:width]


Row = Sequence[tuple[str, str]]
"""The cells of a line of a table: each a text and its meaning ("" for none)."""


def table(rows: Sequence[Row], heads: Sequence[str], stream: TextIO, spare: Sequence[str] = ()) -> list[str]:
    """Returns the lines of a table.

    On a terminal it is no wider than the window: the last column is cut, and the columns named in
    ``spare`` are left out as needed, the first of them first.
    """
    window = width_of(stream)
    body: list[Row] = [[(head, "bold") for head in heads]]
    body += [[(one_line(text), meaning) for text, meaning in row] for row in rows]
    kept = list(range(len(heads)))
    widths = [max(columns(row[at][0]) for row in body) for at in kept]
    for head in spare:
        if window is not None and sum(widths[at] + 2 for at in kept[:-1]) > window:
            kept.remove(heads.index(head))
    return [
        _table_line([row[at] for at in kept], [widths[at] for at in kept], window, stream) for row in body
    ]


def _table_line(cells: Row, widths: Sequence[int], window: int | None, stream: TextIO) -> str:
    line, used = "", 0
    for (text, meaning), width in zip(cells[:-1], widths, strict=False):
        line += paint(text, meaning, stream) + " " * (width - columns(text) + 2)
        used += width + 2
    text, meaning = cells[-1]
    last = text if window is None else fit(text, window - used)
    return (line + paint(last, meaning, stream)).rstrip()


def wrap(text: str, stream: TextIO, indent: str = "") -> str:
    """Returns a text that is broken to the window of a stream, unchanged where that is no terminal."""
    text, window = printable(text), width_of(stream)
    if window is None or columns(indent + text) <= window:
        return indent + text
    import textwrap

    return textwrap.fill(
        text, window, initial_indent=indent, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def error_line(message: str, hint: str | None, stream: TextIO) -> str:
    """Returns an error as a person reads it: what was wrong, and below it what to type next."""
    first, *rest = message.splitlines() or [""]
    shown = wrap(f"error: {first}", stream)
    if shown.startswith("error:"):
        shown = paint("error:", "bad", stream) + shown[len("error:") :]
    lines = [shown, *(f"  {line}" for line in rest)]
    lines += [wrap(line, stream, "  ") for line in (hint or "").splitlines()]
    return "\n".join(lines)


def note(text: str) -> None:
    """Prints a remark on stderr."""
    tell(wrap(text, sys.stderr))


def tell(text: str) -> None:
    """Prints on stderr as far as that takes it: neither a full disk nor a lost reader stops anything.

    Everything that this program says there goes through here. What looks like a secret is masked.
    """
    from torchx_cli.terminal.masking import mask_text  # on demand: quick commands say nothing

    try:
        print(shown(mask_text(text)), file=sys.stderr)
    except OSError:
        send_nowhere(sys.stderr)


FORMATS = ("text", "json", "yaml")


def chosen_format(output: str, json_flag: bool) -> str:
    """Returns the form of output that `-o` and `--json` ask for.

    Raises:
        UsageError: there is no such form.
    """
    if output not in ("", *FORMATS):
        raise UsageError(f"-o takes {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, got `{output}`")
    if json_flag and output not in ("", "json"):
        raise UsageError(f"--json and -o {output} cannot both be")
    return output or ("json" if json_flag else "text")


def emit(data: Any, form: str, *, hide: bool = False) -> None:
    """Prints plain data on stdout as JSON or YAML.

    Args:
        data: what to print.
        form: json or yaml.
        hide: mask what looks like a secret.
    """
    unicode = speaks_unicode(sys.stdout)
    if hide:
        from torchx_cli.terminal.masking import mask

        data = mask(data)
    if form == "yaml":
        print(yaml_text(data, unicode), end="")
        return
    import json

    print(escape_json(json.dumps(data, indent=2, ensure_ascii=not unicode)))


def yaml_text(data: Any, unicode: bool = True) -> str:
    """Returns plain data as YAML in which no control character stands for itself."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=unicode)
    return yaml_text(data, unicode=False) if unicode and has_controls(text) else text


def prepare_streams() -> None:
    """Lets stdout and stderr take text that is not valid, and makes up for those that are closed.

    A file that is opened later would take the number of a closed one, and get what is printed there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is not None:
            if number and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        mode = "w" if number else "r"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # for good


def give_up_output() -> None:
    """Sends nowhere what a stream does not take any more: Python would complain of it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            send_nowhere(stream)
        except ValueError:  # closed
            continue


def send_nowhere(stream: TextIO) -> None:
    """Lets a stream take everything from now on, and keep nothing of it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
