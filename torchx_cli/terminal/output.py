"""Terminal output: results on stdout, messages on stderr, colour on terminals."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from torchx import settings
from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.printable import counted as counted
from torchx.printable import escape_json, has_controls, listed, one_line, printable

with lazy_imports:
    import json
    import shlex
    import unicodedata

    from torchx import yaml_limits
    from torchx_cli.terminal import masking

COLOURS = {"good": "32", "bad": "31", "wait": "33", "dim": "2", "bold": "1"}
"""Meaning -> terminal colour code."""

LONGEST = 2_000
"""Maximum columns of a line of external text without a window."""

_ZERO_WIDTH = ("Mn", "Me", "Cf")
"""The categories of characters without a column of their own: combining marks, joiners, variations."""

_SOFT_HYPHEN, _JOINER = "\u00ad", "\u200d"
_SKIN_TONES = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"

_LONGEST_SCANNED = 16
"""Characters per column scanned by :func:`fit`, as combining characters take no column."""

_MARK = chr(0xF0000 + int.from_bytes(os.urandom(2), "big") % 0xFFFE)
"""Placeholder for ESC in painted text until :func:`shown`; random, so that no external text contains it."""

_PAINTED = _MARK + r"\[([0-9;]*)m"

_SUGGESTED = "attach|cancel|delete|diff|events|log|prune|report|rerun|results|stacks|status|wait|why"
"""The commands that messages suggest for an application."""

_WORDS = r"(\s*)(\S+)"

STATE_MEANING = {
    "SUCCEEDED": "good",
    "RUNNING": "good",
    "FAILED": "bad",
    "CANCELLED": "wait",
    "PENDING": "wait",
    "SUBMITTED": "wait",
}


def is_terminal(stream: TextIO) -> bool:
    """Returns True if a stream is a terminal with cursor control."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def has_colour(stream: TextIO) -> bool:
    """Returns True if a stream is a terminal, or colours are forced; never if NO_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    forced = any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    return forced or is_terminal(stream)


def width_of(stream: TextIO) -> int | None:
    """Returns the window width of a stream in columns, or None if it is not a terminal."""
    if not is_terminal(stream):
        return None
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns or 80)
    except OSError:
        return 80


def paint(text: str, meaning: str, stream: TextIO) -> str:
    """Returns a text in the colour of its meaning, or unchanged if the stream has no colour.

    Painted text must be printed with :func:`say` or :func:`print_stderr`.
    """
    code = COLOURS.get(meaning)
    if code and text and has_colour(stream):
        return colour(text, code)
    return text


def colour(text: str, code: str) -> str:
    """Returns a text with a terminal colour code, to be printed with :func:`say`."""
    return f"{_MARK}[{code}m{text}{_MARK}[0m"


def plain(text: str) -> str:
    """Returns a text without the colours added by :func:`paint`."""
    return re.sub(_PAINTED, "", text)


def shown(text: str) -> str:
    r"""Returns a text for output: control characters escaped, colours as escape sequences.

    No other function creates escape sequences for colours.

    >>> shown("title\x1b]0;x\x07"), shown(colour("failed", "31"))
    ('title\\x1b]0;x\\x07', '\x1b[31mfailed\x1b[0m')
    """
    return re.sub(_PAINTED, "\x1b[\\1m", printable(_with_context(text)))


def _with_context(text: str) -> str:
    """Adds the context to handles and to suggested commands, if the command runs for another machine."""
    prefix = os.environ.get(settings.TORCHX_CONTEXT_PREFIX)
    if not prefix or ("://" not in text and "torchx " not in text):
        return text
    text = re.sub(r"(?<![\w+])([A-Za-z]\w*://torchx/)", rf"{prefix}+\1", text)
    return re.sub(rf"(?<![\w./])torchx (?=(?:{_SUGGESTED}) )", f"torchx --context {prefix} ", text)


def say(text: str = "", *, end: str = "\n", flush: bool = False, hide: bool = False) -> None:
    """Prints a text on stdout; all output there uses this function.

    Args:
        text: the text; may contain external text, such as names and messages.
        end: appended to the text.
        flush: flush immediately.
        hide: mask likely secrets.
    """
    if hide:
        text = masking.mask_text(text)
    print(f"{shown(text)}{end}", end="", flush=flush)  # one write: a signal may come between two


def say_json(line: str) -> None:
    """Prints a line of JSON made by the standard library: ASCII, in which texts are escaped."""
    sys.stdout.write(f"{_with_context(line)}\n")


def paint_state(state: str, stream: TextIO) -> str:
    """Returns the name of a state in its colour."""
    return paint(*state_cell(state), stream)


def state_cell(state: str) -> tuple[str, str]:
    """Returns the name of a state and its meaning, as a cell of a table."""
    return state, STATE_MEANING.get(state, "dim")


def supports_unicode(stream: TextIO) -> bool:
    """Returns True if a stream supports Unicode; never if the locale is C."""
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower()
    return locale not in ("C", "POSIX") and encoding.replace("-", "") == "utf8"


def bar_of(stream: TextIO) -> str:
    """Returns the separator between a replica name and its log line."""
    if supports_unicode(stream):
        return "│"
    return "|"


def columns(text: str) -> int:
    """Returns the width of a text in terminal columns.

    Emoji that are joined count one by one, as on a terminal that does not join them.

    >>> columns("abc"), columns("日本"), columns("e\u0301"), columns("👩\u200d🚀")
    (3, 4, 1, 4)
    """
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def padded(text: str, width: int) -> str:
    """Returns a text filled with spaces to a number of columns."""
    return text + " " * (width - columns(text))


def _width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in _ZERO_WIDTH and character != _SOFT_HYPHEN:
        return 0
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 1


def fit(text: str, width: int | None) -> str:
    """Returns a text as one line, truncated with an ellipsis to a number of columns (None: no window).

    The running time depends on the width, not on the length of the text. Emoji that are joined, and marks of
    a letter, stay together.

    >>> fit("a longer text", 8), fit("👩\u200d🚀👩\u200d🚀👩", 8)
    ('a long..', '👩\u200d🚀..')
    """
    width = LONGEST if width is None else max(0, width)
    text = text if isinstance(text, str) else one_line(text)  # a plugin may return anything
    scanned = text[: width * _LONGEST_SCANNED + 1]
    line = one_line(scanned)
    used, room, before = 0, 0, ""  # columns, the characters before the ellipsis, the character before
    for at, character in enumerate(line):
        wide = _width(character)
        begins = wide and before != _JOINER and character not in _SKIN_TONES
        if begins and used <= width - 2:
            room = at
        used, before = used + wide, character
        if used > width:
            return line[:room] + ".."[:width]
    if len(scanned) == len(text):
        return line
    return line[:room] + ".."[:width]


Row = Sequence[str | tuple[str, str]]
"""The cells of a table row, each a text, or a text and its meaning."""


def cells_of(row: Row) -> list[tuple[str, str]]:
    """Returns the cells of a table row, each a text and its meaning ("" for none)."""
    return [cell if isinstance(cell, tuple) else (cell, "") for cell in row]


def wrap(text: str, stream: TextIO, indent: str = "") -> str:
    """Wraps a text to the window of a stream, unless that is not a terminal."""
    text, window = printable(text), width_of(stream)
    if window is None or columns(indent + text) <= window:
        return indent + text

    return "\n".join(filled(text, window, indent, indent + "  "))


def filled(text: str, width: int, first: str = "", below: str = "") -> list[str]:
    """Returns the lines of a text that is wrapped at spaces.

    Args:
        text: the text; its line ends count as spaces.
        width: columns of a line; a longer piece is a line of its own.
        first: the indent of the first line.
        below: the indent of the others.

    >>> filled("one two  three", 8, "- ", "  ")
    ['- one', '  two', '  three']
    """
    lines, line, used = [], first, columns(first)
    begun = False
    for space, word in re.findall(_WORDS, text.expandtabs(4)):
        needed = columns(plain(word))
        if begun and used + len(space) + needed > width:
            lines.append(line)
            line, used = below, columns(below)
        else:
            line, used = line + space.replace("\n", " "), used + len(space)
        line, used, begun = line + word, used + needed, True
    if begun:
        return [*lines, line]
    return lines


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


def error_line(message: str, hint: str | None, stream: TextIO) -> str:
    """Returns an error message with its hint on the next line."""
    first, *rest = message.splitlines() or [""]
    shown = wrap(f"error: {first}", stream)
    if shown.startswith("error:"):
        shown = paint("error:", "bad", stream) + shown[len("error:") :]
    lines = [shown, *(f"  {line}" for line in rest)]
    lines += [wrap(line, stream, "  ") for line in (hint or "").splitlines()]
    return "\n".join(lines)


def note(text: str) -> None:
    """Prints a message on stderr, wrapped to the window."""
    print_stderr(wrap(text, sys.stderr))


def note_all(lines: Iterable[str]) -> None:
    """Prints remarks on stderr, each as a note."""
    for line in lines:
        note(f"note: {line}")


def print_stderr(text: str) -> None:
    """Prints on stderr with likely secrets masked; write errors are ignored.

    All output on stderr uses this function.
    """
    try:
        print(shown(masking.mask_text(text)), file=sys.stderr)
    except OSError:
        redirect_to_devnull(sys.stderr)


FORMATS = ("text", "json", "yaml")


def output_format(output: str, json_flag: bool) -> str:
    """Returns the output format selected by `-o` and `--json`.

    Raises:
        UsageError: the format is unknown, or the flags conflict.
    """
    if output not in ("", *FORMATS):
        raise ArgumentError(f"-o takes {listed(FORMATS, 'or')}, got `{output}`", flag="-o", given=output)
    if json_flag and output not in ("", "json"):
        raise UsageError(f"--json cannot be combined with -o {output}", code="conflicting_flags")
    return output or ("json" if json_flag else "text")


def emit(data: Any, form: str, *, hide: bool = False, flush: bool = False) -> None:
    """Prints plain data on stdout as JSON or YAML.

    Args:
        data: the data.
        form: json or yaml.
        hide: mask likely secrets.
        flush: flush immediately.
    """
    if hide:
        data = masking.mask(data)
    print(data_text(data, form), end="", flush=flush)


def data_text(data: Any, form: str) -> str:
    """Returns plain data as JSON or YAML for stdout."""
    unicode = supports_unicode(sys.stdout)
    if form == "yaml":
        return yaml_text(data, unicode)

    return escape_json(_with_context(json.dumps(data, indent=2, ensure_ascii=not unicode))) + "\n"


def value_text(value: Any) -> str:
    """Returns a value as on a command line: a text, or JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value)


def yaml_text(data: Any, unicode: bool = True) -> str:
    """Returns plain data as YAML with control characters escaped."""
    text = yaml_limits.dump(data, unicode=unicode)
    if unicode and has_controls(text):
        return yaml_text(data, unicode=False)
    return text


def prepare_streams() -> None:
    """Makes stdout and stderr accept invalid text, and opens closed standard streams on /dev/null.

    Otherwise a file opened later would reuse the closed descriptor and receive the output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is not None:
            if number and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
            continue
        devnull = os.open(os.devnull, os.O_RDWR)
        if devnull != number:
            os.dup2(devnull, number)
            os.close(devnull)
        mode = "w" if number else "r"
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # kept open


def discard_output() -> None:
    """Discards pending output of closed streams, which Python would report at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            redirect_to_devnull(stream)
        except ValueError:  # closed
            continue


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirects a stream to /dev/null."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)
