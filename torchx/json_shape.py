"""Checks of JSON that users write: an error names the path of the key, the expected and the given type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any

from torchx.json_limits import Data
from torchx.suggestions import nearest

Shape = Any
"""A type; ``[shape]`` for a list; a dict for an object, with the shapes of its keys, where :data:`ANY_KEY` is
every other key and :data:`REQUIRED` lists those that must exist; or a tuple of alternatives. ``float``
accepts whole numbers, too."""

ANY_KEY, REQUIRED = "*", "!"

LARGEST_NUMBER = 2**53
"""The largest number that fits: JSON numbers are exact up to here."""

_NAMES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
}


def check(value: Any, shape: Shape, path: str, *, closed: bool = False) -> None:
    """Checks the shape of data.

    Args:
        value: the data.
        shape: its shape.
        path: its path in the document, for the message.
        closed: reject the keys that the shape of an object does not list; ``{}`` allows all.

    Raises:
        ValueError: it has another shape.

    >>> check({"roles": [{"name": None}]}, {"roles": [{"name": str}]}, "app")
    Traceback (most recent call last):
    ...
    ValueError: `app.roles[0].name` takes a string, got null
    """
    missing = list(_missing(value, shape, path, closed))
    if missing:
        verb = "is"
        if missing[1:]:
            verb = "are"
        raise ValueError(f"{', '.join(f'`{name}`' for name in missing)} {verb} missing")


def _missing(value: Any, shape: Shape, path: str, closed: bool) -> Iterator[str]:
    """Checks the shape of data, and yields the paths of the missing keys."""
    if not isinstance(shape, tuple):
        shape = (shape,)
    fitting = [each for each in shape if _fits(value, _kind(each))]
    if not fitting:
        expected = " or ".join(_NAMES[_kind(each)] for each in shape)
        raise ValueError(f"`{path}` takes {expected}, got {kind_of(value)}")
    if isinstance(fitting[0], list):
        for number, item in enumerate(value):
            yield from _missing(item, fitting[0][0], f"{path}[{number}]", closed)
    elif isinstance(fitting[0], dict):
        yield from _missing_keys(value, fitting[0], path, closed)


def _missing_keys(value: Data, shape: Mapping[str, Shape], path: str, closed: bool) -> Iterator[str]:
    for key, item in value.items():
        known = ANY_KEY if key == REQUIRED else key
        inner = shape.get(known, shape.get(ANY_KEY))
        if inner is not None:
            yield from _missing(item, inner, f"{path}.{key}".lstrip("."), closed)
        elif closed and shape:
            close = nearest(key, [name for name in shape if name != REQUIRED])
            hint = f": did you mean `{close}`?" if close else ""
            raise ValueError(f"`{path}.{key}` is not known{hint}")
    for key in shape.get(REQUIRED, ()):
        if key not in value:
            yield f"{path}.{key}".lstrip(".")


def _kind(shape: Shape) -> type:
    if isinstance(shape, type):
        return shape
    return type(shape)


def _fits(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, (int, float)) and not abs(value) <= LARGEST_NUMBER:  # or not a number
        return False
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


def kind_of(value: Any) -> str:
    """Returns the JSON type of a value, as in ``a list``."""
    if type(value) in (int, float) and not abs(value) <= LARGEST_NUMBER:
        return "a number out of range"
    if type(value) is int:
        return _NAMES[float]
    return _NAMES[type(value)]
