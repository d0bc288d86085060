"""Foreign text in a form without effect on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNSAFE = (
    "["
    "\x00-\x08\x0b-\x1f\x7f"  # C0 except tab and line feed, and DEL
    "\x80-\x9f"  # C1
    "\u2028\u2029"  # other line separators
    "\ud800-\udfff"  # bytes that are not UTF-8
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # controls of the text direction
    "]"
)


def joined(*parts: str | None) -> str:
    """Returns the parts of a message that are not empty, with semicolons between them.

    >>> joined("queued again", "", None, "waits for nodes")
    'queued again; waits for nodes'
    """
    return "; ".join(filter(None, parts))


def first_line(error: BaseException) -> str:
    """Returns the first line of an error, or its class if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def printable(text: object) -> str:
    r"""Returns an object as text with escaped control characters.

    Keeps line feeds and tabs; drops a carriage return before a line feed.

    >>> printable("a\tb\x1b[31mred\u202e"), printable("dos\r\nend")
    ('a\tb\\x1b[31mred\\u202e', 'dos\nend')
    """
    if not isinstance(text, str):  # a plugin may return anything
        text = "" if text is None else str(text)
    if text.replace("\n", "").isprintable() or re.search(_UNSAFE, text) is None:  # the first is faster
        return text
    return re.sub(_UNSAFE, _spelled, text.replace("\r\n", "\n"))


def one_line(text: object) -> str:
    r"""Returns a printable text on a single line.

    >>> one_line("role\nFAKE  RUNNING\t!")
    'role\\nFAKE  RUNNING !'
    """
    if isinstance(text, str) and text.isprintable():
        return text
    shown = printable(text)
    if "\n" not in shown and "\t" not in shown:
        return shown
    return shown.replace("\n", "\\n").expandtabs(4)


def shortened(text: str, most: int) -> str:
    """Returns a text of at most a number of characters: a longer one ends in two dots.

    >>> shortened("a long text", 8), shortened("short", 8)
    ('a long..', 'short')
    """
    if len(text) <= most:
        return text
    return f"{text[: most - 2]}.."


def listed(names: Sequence[str], conjunction: str) -> str:
    """Returns one or more names as a list in a sentence.

    >>> listed(["a", "b", "c"], "or"), listed(["a"], "or")
    ('a, b or c', 'a')
    """
    return f" {conjunction} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def counted(number: int, noun: str, plural: str = "") -> str:
    """Formats a number of things.

    >>> counted(1, "problem"), counted(2000, "problem"), counted(2, "process", "processes")
    ('1 problem', '2,000 problems', '2 processes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def few(names: Sequence[str], most: int = 3) -> str:
    """Returns the first names, and the number of the others.

    >>> few(["a", "b"]), few(["a", "b", "c"], 1)
    ('a, b', 'a and 2 more')
    """
    text = ", ".join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most:,} more"
    return text


def ranges(numbers: Iterable[int]) -> str:
    """Returns numbers in order, with ranges.

    >>> ranges([5, 0, 1, 2]), ranges([])
    ('0-2,5', '')
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def has_controls(text: str) -> bool:
    """Returns True if a text has characters that :func:`printable` escapes."""
    return not text.replace("\n", "").isprintable() and re.search(_UNSAFE, text) is not None


def without_controls(text: str) -> str:
    """Returns a text without the characters that :func:`printable` escapes."""
    return re.sub(_UNSAFE, "", text)


def escape_json(text: str) -> str:
    r"""Returns a JSON text with escaped control characters.

    >>> escape_json('"\u202eab"')
    '"\\u202eab"'
    """
    return re.sub(_UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}"


def brief(seconds: float) -> str:
    """Returns a duration with one unit.

    >>> brief(2.4), brief(719), brief(7300)
    ('2 s', '11 min', '2 h')
    """
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def memory_size(count: int) -> str:
    """Formats bytes of memory, with units of 1024 as in ``memMB``.

    >>> memory_size(300 << 20), memory_size(64 << 30), memory_size(5 << 10)
    ('300 MiB', '64.0 GiB', '0 MiB')
    """
    mebibytes = count / (1 << 20)
    if mebibytes < 1000:
        return f"{mebibytes:.0f} MiB"
    return f"{mebibytes / 1024:.1f} GiB"


def table(text: str) -> dict[str, str]:
    r"""Returns a table that is written as text: a line ``name: text`` for each row.

    >>> table("a: one: two\nb:\n")
    {'a': 'one: two', 'b': ''}
    """
    rows = (line.partition(":") for line in text.strip().split("\n"))
    return {name: value.strip() for name, _, value in rows}
