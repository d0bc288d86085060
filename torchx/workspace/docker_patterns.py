"""The patterns of `.dockerignore`, as the library `moby/patternmatcher` of `docker build` reads them.

Where that library does something other than its documentation says, this follows the library: a file has to
mean the same here and there. A test compares the two with many generated patterns. Two kinds of patterns are
errors here although the library gives them a meaning that is hardly wanted: classes by name
(``[[:alpha:]]``), and a backslash before a letter or digit that would make an assertion of it (``\\b``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters that do not count at the ends of a line."""

_PLAIN_ESCAPES = frozenset("dwsDWSaftnrv")
"""Letters that a backslash makes a class or a control character of."""


def clean(pattern: str, *, takes: bool) -> str:
    """Returns the shortest form of a pattern, without a slash at either end.

    Args:
        pattern: the pattern.
        takes: it followed a ``!``.

    Raises:
        ValueError: there is none.

    >>> clean("./a//b/", takes=False), clean("/a/../b", takes=True)
    ('a/b', 'b')
    """
    shortest = posixpath.normpath(pattern) if pattern else ""
    if shortest.startswith("/"):
        shortest = shortest.lstrip("/") or "/"
    if takes and shortest in ("", "/"):
        raise ValueError("no pattern follows the !")
    return shortest


def regex(pattern: str) -> str:
    r"""Returns the regular expression of a pattern that :func:`clean` has returned.

    Raises:
        ValueError: the pattern is not valid.

    >>> regex("**.log"), regex("a?/*.py")
    ('(?s:.*)\\.log', 'a[^/]/[^/]*\\.py')
    """
    _check(pattern)
    if pattern.startswith("**") and not re.search(r"[*?\[\]\\]", pattern[2:]):
        # plain text behind the first **: the end of a path, not only of its last parts
        suffix = pattern[2:]
        whole = f"(?s:.*){re.escape(suffix)}"
        return f"(?:{whole}|{re.escape(suffix[1:])})" if suffix.startswith("/") else whole
    if re.fullmatch(r"[^*?\[\]\\]*(?:\*\*)?", pattern):
        return re.escape(pattern.removesuffix("**")) + ("(?s:.*)" if pattern.endswith("**") else "")
    # a | outside of [] separates two expressions, one for the start of a path and one for its end
    *first, last = "".join(_pieces(_library(pattern))).split(_OR)
    if not first:
        return last
    between = [f"(?s:.*)(?:{part})(?s:.*)" for part in first[1:]]
    return "|".join([f"(?:{first[0]})(?s:.*)", *between, f"(?s:.*)(?:{last})"])


_DEEP = "(.*/)?"
_OR = "\n|"
_REPEAT = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")


def _library(pattern: str) -> str:
    """Returns the expression that the library makes of a pattern.

    It replaces one character after the other, within ``[]`` too, and leaves some unescaped.
    """
    made, at, deep = "", 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        was_deep, deep = deep, False
        if char == "*" and pattern.startswith("*", at):
            at += 2 if pattern.startswith("/", at + 1) else 1
            deep = at < len(pattern)
            made += "" if deep and was_deep else _DEEP if deep else ".*"  # two in a row mean the same as one
        elif char == "*":
            made += "[^/]*"
        elif char == "?":
            made += "[^/]"
        elif char == "\\":
            made += char + pattern[at]
            at += 1
        else:
            made += f"\\{char}" if char in ".+()$" else char
    return made


def _pieces(made: str) -> Iterator[str]:
    """Yields an expression of the library as one of Python."""
    at = 0
    while at < len(made):
        char = made[at]
        at += 1
        if char == "\\":
            yield _escaped(made[at])
            at += 1
        elif char == "[":
            piece, at = _class(made, at)
            yield piece
        elif char == "{" and (found := _REPEAT.match(made, at - 1)):
            yield _repeated(found)
            at = found.end()
        elif char == "|":
            yield _OR
        elif char == ".":
            yield r"[^\n]"
        else:
            yield char if char in "^*?()" else re.escape(char)


def _repeated(found: re.Match[str]) -> str:
    least, most = int(found[1]), int(found[2] or found[1])
    if not least <= most <= 1000:
        raise ValueError(f"the number of repetitions in `{found[0]}`")
    return found[0]


def _class(made: str, at: int) -> tuple[str, int]:
    """Returns the expression of a class of characters whose ``[`` was read, and where it ends."""
    found = "["
    if made.startswith("^", at):
        found, at = "[^", at + 1
    start = at
    while at == start or not made.startswith("]", at):
        if at >= len(made):
            raise ValueError("a [ without its ]")
        if made[at] == "\\":
            found += _escaped(made[at + 1])
            at += 2
            continue
        if made.startswith("[:", at) and ":]" in made[at + 2 :]:
            raise ValueError("a class of characters by name")
        range_ = made[at] == "-" and at > start and not made.startswith("]", at + 1)
        found += "-" if range_ else re.escape(made[at])
        at += 1
    return f"{found}]", at + 1


def _escaped(char: str) -> str:
    if char in _PLAIN_ESCAPES:
        return f"\\{char}"
    if char.isalnum() or not char.isascii():
        raise ValueError(f"a backslash before `{char}`")
    return re.escape(char)


def _check(pattern: str) -> None:
    """Refuses what the rules of Go's `filepath.Match` refuse.

    Raises:
        ValueError: a class of characters or a backslash is not complete.
    """
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            if at == len(pattern):
                raise ValueError("no character follows the \\")
            at += 1
        elif char == "[":
            at = _check_class(pattern, at)


def _check_class(pattern: str, at: int) -> int:
    at += pattern.startswith("^", at)
    start = at
    while at == start or not pattern.startswith("]", at):
        at = _check_member(pattern, at)
        if pattern.startswith("-", at):
            at = _check_member(pattern, at + 1)
    return at + 1


def _check_member(pattern: str, at: int) -> int:
    """Returns what follows a character of a class; there is always something, its ``]`` at least."""
    if pattern[at : at + 1] in ("", "-", "]"):
        raise ValueError(
            "a [ without its ]" if at >= len(pattern) else f"a `{pattern[at]}` that has to be escaped in []"
        )
    at += 1
    if pattern[at - 1] == "\\":
        at += 1
    if at >= len(pattern):
        raise ValueError("a [ without its ]")
    return at
