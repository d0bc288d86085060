"""The patterns of `.dockerignore`, as interpreted by `docker build`'s library `moby/patternmatcher`.

If the library differs from its documentation, this module follows the library. A test compares the two with
many generated patterns. Two kinds of patterns are errors here although the library accepts them: named
classes (``[[:alpha:]]``), and a backslash that would turn a letter or digit into an assertion (``\\b``).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""The characters stripped from the ends of a line."""

_PLAIN_ESCAPES = frozenset("dwsDWSaftnrv")
"""Letters that a backslash turns into a class or a control character."""


def clean(pattern: str, *, includes: bool) -> str:
    """Normalizes a pattern, without a slash at either end.

    Args:
        pattern: the pattern.
        includes: whether it follows a ``!``.

    Raises:
        ValueError: no pattern follows the ``!``.

    >>> clean("./a//b/", includes=False), clean("/a/../b", includes=True)
    ('a/b', 'b')
    """
    shortest = ""
    if pattern:
        shortest = posixpath.normpath(pattern)
    if shortest.startswith("/"):
        shortest = shortest.lstrip("/") or "/"
    if includes and shortest in ("", "/"):
        raise ValueError("no pattern follows the !")
    return shortest


def regex(pattern: str) -> str:
    r"""Converts a pattern normalized by :func:`clean` to a regular expression.

    Raises:
        ValueError: the pattern is invalid.

    >>> regex("**.log"), regex("a?/*.py")
    ('(?s:.*)\\.log', 'a[^/]/[^/]*\\.py')
    """
    _check(pattern)
    if pattern.startswith("**") and not re.search(r"[*?\[\]\\]", pattern[2:]):
        # plain text after the first **: any path that ends with the text
        suffix = pattern[2:]
        ending = f"(?s:.*){re.escape(suffix)}"
        if suffix.startswith("/"):
            return f"(?:{ending}|{re.escape(suffix[1:])})"
        return ending
    if re.fullmatch(r"[^*?\[\]\\]*(?:\*\*)?", pattern):
        return re.escape(pattern.removesuffix("**")) + ("(?s:.*)" if pattern.endswith("**") else "")
    # a | outside of [] separates an expression for the start of a path from one for its end
    *first, last = "".join(_pieces(_library(pattern))).split(_OR)
    if not first:
        return last
    between = [f"(?s:.*)(?:{part})(?s:.*)" for part in first[1:]]
    return "|".join([f"(?:{first[0]})(?s:.*)", *between, f"(?s:.*)(?:{last})"])


_DEEP = "(.*/)?"
_OR = "\n|"
_REPEAT = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")


def _library(pattern: str) -> str:
    """Returns the library's (Go) regular expression for a pattern.

    The library replaces characters one by one, within ``[]`` too, and leaves some unescaped.
    """
    made, at, deep = "", 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        was_deep, deep = deep, False
        if char == "*" and pattern.startswith("*", at):
            at += 2 if pattern.startswith("/", at + 1) else 1
            deep = at < len(pattern)
            if not deep:
                made += ".*"
            elif not was_deep:  # two in a row equal one
                made += _DEEP
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
    """Converts the library's expression to Python's syntax, and yields the pieces."""
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
        elif char == "{" and (match := _REPEAT.match(made, at - 1)):
            yield _repeated(match)
            at = match.end()
        elif char == "|":
            yield _OR
        elif char == ".":
            yield r"[^\n]"
        else:
            yield char if char in "^*?()" else re.escape(char)


def _repeated(match: re.Match[str]) -> str:
    least, most = int(match[1]), int(match[2] or match[1])
    if not least <= most <= 1000:
        raise ValueError(f"invalid number of repetitions in `{match[0]}`")
    return match[0]


def _class(made: str, at: int) -> tuple[str, int]:
    """Converts the character class that starts before ``at``; returns the expression and the end position."""
    expression = "["
    if made.startswith("^", at):
        expression, at = "[^", at + 1
    start = at
    while at == start or not made.startswith("]", at):
        if at >= len(made):
            raise ValueError("a [ is not closed")
        if made[at] == "\\":
            expression += _escaped(made[at + 1])
            at += 2
            continue
        if made.startswith("[:", at) and ":]" in made[at + 2 :]:
            raise ValueError("named character classes are not supported")
        range_ = made[at] == "-" and at > start and not made.startswith("]", at + 1)
        expression += "-" if range_ else re.escape(made[at])
        at += 1
    return f"{expression}]", at + 1


def _escaped(char: str) -> str:
    if char in _PLAIN_ESCAPES:
        return f"\\{char}"
    if char.isalnum() or not char.isascii():
        raise ValueError(f"invalid escape `\\{char}`")
    return re.escape(char)


def _check(pattern: str) -> None:
    """Checks a pattern by the rules of Go's `filepath.Match`.

    Raises:
        ValueError: a character class or an escape is incomplete.
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
    """Returns the position after a member of a character class; it is never the end of the pattern."""
    if pattern[at : at + 1] in ("", "-", "]"):
        raise ValueError(
            "a [ is not closed" if at >= len(pattern) else f"`{pattern[at]}` must be escaped in []"
        )
    at += 1
    if pattern[at - 1] == "\\":
        at += 1
    if at >= len(pattern):
        raise ValueError("a [ is not closed")
    return at
