"""Checks of JSON that users write: an error names the path of the key, the expected and the given type."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, EnumMeta
from types import NoneType
from typing import Any

Shape = Any
"""A type; an enumeration for its values; ``[shape]`` for a list; a dict for an object, with the shapes of its
keys, where :data:`ANY_KEY` is every other key and :data:`REQUIRED` lists those that must exist; or a tuple of
alternatives. ``float`` accepts every number."""

ANY_KEY, REQUIRED = "*", "!"

_NAMES: dict[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
}


def check(value: Any, shape: Shape, path: str) -> None:
    """Checks the shape of data.

    Args:
        value: the data.
        shape: its shape.
        path: its path in the document, for the message.

    Raises:
        ValueError: it has another shape.

    >>> check({"roles": [{"name": None}]}, {"roles": [{"name": str}]}, "app")
    Traceback (most recent call last):
    ...
    ValueError: `app.roles[0].name` takes a string, got null
    """
    shapes = shape if isinstance(shape, tuple) else (shape,)
    fitting = [each for each in shapes if _fits(value, each)]
    if not fitting:
        expected = " or ".join(map(_name, shapes))
        given = f"`{value}`" if isinstance(shape, EnumMeta) and isinstance(value, str) else kind_of(value)
        raise ValueError(f"`{path}` takes {expected}, got {given}")
    if isinstance(fitting[0], list):
        for number, item in enumerate(value):
            check(item, fitting[0][0], f"{path}[{number}]")
    elif isinstance(fitting[0], dict):
        _check_object(value, fitting[0], path)


def _check_object(value: Mapping[str, Any], shape: Mapping[str, Shape], path: str) -> None:
    before = f"{path}." if path else ""
    for key, item in value.items():
        inner = shape.get(key, shape.get(ANY_KEY))
        if inner is not None:
            check(item, inner, f"{before}{key}")
    for key in shape.get(REQUIRED, ()):
        if key not in value:
            raise ValueError(f"`{before}{key}` is missing")


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, EnumMeta):
        return value in _values(shape)
    kind = shape if isinstance(shape, type) else type(shape)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _values(shape: EnumMeta) -> list[str]:
    members: list[Enum] = list(shape)
    return [str(member.value) for member in members]


def _name(shape: Shape) -> str:
    if isinstance(shape, EnumMeta):
        return " or ".join(_values(shape))
    return _NAMES[shape if isinstance(shape, type) else type(shape)]


def kind_of(value: Any) -> str:
    """Returns the JSON type of a value, as in ``a list``."""
    return _NAMES.get(float if type(value) is int else type(value), "another value")
