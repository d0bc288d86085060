"""Answers of limited size: long lists are cut, and a cursor leads to the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from torchx.errors import UsageError

LARGEST = 5_500
"""Maximum bytes of an answer without its frame."""

LARGEST_WITH_FRAME = 6_000
"""Maximum bytes of an answer with cursors, messages and notes."""

LONGEST_TEXT = 1_000
"""Maximum characters of a text in an answer that is too large."""


def text_of(data: Any) -> str:
    r"""Returns data as compact JSON, valid as UTF-8: a byte that was not text remains an escape.

    >>> print(text_of("caf\u00e9 \udcff"))
    "café \udcff"
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def size(data: Any) -> int:
    """Returns the bytes of data as compact JSON."""
    return len(text_of(data).encode("utf-8"))


def page(data: Any, cursor: str = "") -> Any:
    """Returns data that is small enough, unchanged, or its beginning with cursors for the rest.

    Args:
        data: plain data.
        cursor: the place of the rest, from an earlier answer.

    Raises:
        UsageError: the cursor is invalid for the data.

    >>> page([1, 2])
    [1, 2]
    >>> cut = page(list(range(5000)))
    >>> rest = cut["more"][0]
    >>> rest["of"], page(list(range(5000)), rest["cursor"])["result"][0] == rest["shown"]
    (5000, True)
    """
    at, begin = "", 0
    if cursor:
        at, begin, data = _resolve(data, cursor)
    cut, more = _cut(data)
    places = [
        {
            "at": f"{at}{path}",
            "shown": shown,
            "of": of + (begin if not path else 0),
            "cursor": f"{_moved(at, path, begin)}:{shown + (begin if not path else 0)}",
        }
        for path, shown, of in more
    ]
    if cut != data or cursor:
        return {"result": cut, "more": places}
    return data


def shortened(data: Any, most: int = LARGEST) -> Any:
    """Returns data of at most this number of bytes unchanged, or its beginning."""
    return _cut(data, most)[0]


def _moved(at: str, path: str, begin: int) -> str:
    """Returns the path in the whole data of a path in the rest of a list."""
    if not path or not begin:
        return f"{at}{path}"
    index, slash, inner = path[1:].partition("/")
    return f"{at}/{int(index) + begin}{slash}{inner}"


def _resolve(data: Any, cursor: str) -> tuple[str, int, Any]:
    """Returns the path, the first item and the rest of the list at a cursor."""
    path, _, number = cursor.rpartition(":")
    try:
        begin = int(number)
        for key in path.split("/")[1:]:
            if isinstance(data, list):
                data = data[int(key)]
            else:
                data = data[_decoded(key)]
        if begin < 0:
            raise ValueError(begin)
        if isinstance(data, dict):
            return path, 0, dict(list(data.items())[begin:])
        return path, begin, data[begin:]
    except (ValueError, KeyError, IndexError, TypeError):
        raise invalid(cursor) from None


def invalid(cursor: str) -> UsageError:
    """Returns the error about a cursor of no answer."""
    return UsageError(f"`{cursor[:80]}` is not a cursor of this answer")


def _cut(data: Any, most: int = LARGEST) -> tuple[Any, list[tuple[str, int, int]]]:
    """Returns the beginning of data that is too large: path, shown items and all items of each cut part."""
    root = {"": json.loads(text_of(data))}
    lengths: dict[str, int] = {}
    while (excess := size(root[""]) - most) > 0:
        every = list(_walk("", root, ""))
        several = [part for part in every if len(part[1][part[2]]) > 1]
        parts = list(filter(_is_long, several)) or several or every
        path, holder, key = max(parts, key=lambda part: size(part[1][part[2]]))
        value = holder[key]
        lengths.setdefault(path, len(value))
        share = 1 - (excess + 200) / size(value)
        kept = min(len(value) - 1, max(1, int(len(value) * share)))
        if isinstance(value, dict):
            holder[key] = dict(list(value.items())[:kept])
        else:
            holder[key] = value[:kept]
    left = {path: len(holder[key]) for path, holder, key in _walk("", root, "") if path in lengths}
    return root[""], [(path, shown, lengths[path]) for path, shown in left.items()]


def _is_long(part: tuple[str, Any, Any]) -> bool:
    """Returns True for a list, a long text, or a mapping of texts and numbers only."""
    value = part[1][part[2]]
    if isinstance(value, str):
        return len(value) > LONGEST_TEXT
    if isinstance(value, dict):
        return len(value) > 1 and not any(isinstance(item, (dict, list)) for item in value.values())
    return isinstance(value, list) and len(value) > 1


def _walk(path: str, holder: Any, key: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yields path, holder and key of all parts."""
    value = holder[key]
    if not isinstance(value, (dict, list, str)) or not value:
        return
    yield path, holder, key
    if not isinstance(value, str):
        for name in [*value] if isinstance(value, dict) else range(len(value)):
            yield from _walk(f"{path}/{_encoded(str(name))}", value, name)


def _encoded(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _decoded(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
