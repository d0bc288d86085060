"""The text form of ``key=value`` pairs."""

from __future__ import annotations

import re

from torchx.errors import UsageError

# a key: the start or a separator, then no further separator, equals sign or quote up to the equals sign
_KEY = re.compile(r"""(?:^|[,;])\s*([^,;='"\s](?:[^,;='"]*[^,;='"\s])?)\s*=""")
_SEPARATOR = re.compile("[,;]")
# quotes count only around a whole value or element
_QUOTED = re.compile(r"""(?P<quote>['"]).*?(?P=quote)(?=\s*(?:[,;]|$))""", re.DOTALL)


class PairsError(UsageError, ValueError):
    """A text does not consist of ``key=value`` pairs (a UsageError, also a ValueError)."""

    code = "invalid_value"


def to_dict(text: str) -> dict[str, str]:
    """Parses ``key=value`` pairs as :func:`to_pairs`; the last value of a repeated key counts.

    >>> to_dict("a=1,2;b=x=y")
    {'a': '1,2', 'b': 'x=y'}
    """
    return dict(to_pairs(text))


def to_pairs(text: str) -> list[tuple[str, str]]:
    """Parses ``key=value`` pairs separated by ``,`` or ``;``.

    The last separator before a key ends the value before it, so values may hold both separators, and
    equals signs too where no separator comes first. A quoted value may contain anything; the
    quotes are removed. Space around keys and values is dropped.

    Raises:
        PairsError: the text is not empty and does not begin with a pair.

    >>> to_pairs("a='1,b=2',c=3")
    [('a', '1,b=2'), ('c', '3')]
    """
    if not text:
        return []
    found = _keys(text)
    if not found or found[0].start() != 0 or text[0] in ",;":
        raise PairsError(f"`{text}` does not begin with a `key=value` pair", hint="e.g. a=1,b=2")
    pairs = []
    for key, following in zip(found, [*found[1:], None], strict=True):
        value = text[key.end() : following.start() if following else None].strip()
        pairs.append((key[1], unquote(value)))
    return pairs


def split_elements(text: str) -> list[str]:
    """Splits at ``,`` and ``;``, not inside quoted elements; drops empty elements, keeps space.

    >>> split_elements("a,b;;'c,d'")
    ['a', 'b', 'c,d']
    """
    elements, at = [], 0
    while at <= len(text):
        quoted = _QUOTED.match(text, at)
        end = _SEPARATOR.search(text, quoted.end() if quoted else at)
        stop = end.start() if end else len(text)
        elements.append(unquote(text[at:stop]))
        at = stop + 1
    return [element for element in elements if element]


def unquote(value: str) -> str:
    """Removes the quotes of a quoted value.

    >>> unquote('"a"'), unquote("'a','b'")
    ('a', "'a','b'")
    """
    quoted = _QUOTED.match(value)
    if quoted and quoted.end() == len(value):
        return value[1:-1]
    return value


def _keys(text: str) -> list[re.Match[str]]:
    """Finds the keys, skipping quoted values and elements."""
    found: list[re.Match[str]] = []
    at = 0
    while at < len(text):
        boundary = at == 0 or text[at] in ",;"
        key = _KEY.match(text, at) if boundary else None
        if key:
            found.append(key)
        at = key.end() if key else at + 1
        if boundary and (quoted := _QUOTED.match(text, _after_space(text, at))):
            at = quoted.end()
    return found


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
