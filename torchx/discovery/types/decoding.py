"""Documented helpers that convert texts to values of a type."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from torchx.discovery.types.annotations import converter_of, plain, type_text
from torchx.discovery.types.converters import BadValue

T = TypeVar("T")


def decode(encoded_value: Any, annotation: Any) -> Any:
    """Converts a text or a JSON value to a type.

    Raises:
        ValueError: it cannot be converted.
        TypeError: the type cannot be written as text.

    >>> decode("1,2", list[int]), decode("a=x=y,b=z", dict[str, str]), decode("", list[str])
    ([1, 2], {'a': 'x=y', 'b': 'z'}, None)
    """
    converter = converter_of(annotation)
    try:
        return converter.accept(encoded_value)
    except BadValue as error:
        detail = f": {error.detail}" if error.detail else ""
        raise ValueError(
            f"{type_text(annotation)} takes {converter.takes}, got {encoded_value!r}{detail}"
        ) from None


def decode_from_string(encoded_value: str, annotation: Any) -> Any:
    """Converts a text to a list or dict; an empty text is None.

    Raises:
        ValueError: it cannot be converted, or the type is neither list nor dict.
    """
    if not encoded_value:
        return None
    kind = decode_optional(annotation)
    if (typing.get_origin(kind) or kind) not in (list, dict):
        raise ValueError(f"`{type_text(annotation)}` is neither a list nor a dict")
    return decode(encoded_value, annotation)


def decode_optional(param_type: Any) -> Any:
    """Returns ``T`` for ``T | None``, in any order and spelling; any other type unchanged.

    >>> decode_optional(int | None)
    <class 'int'>
    """
    if typing.get_origin(param_type) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(param_type) if each is not type(None)]
        if len(others) == 1 and len(typing.get_args(param_type)) == 2:
            return others[0]
    return param_type


def is_bool(param_type: Any) -> bool:
    """Returns True if a type is ``bool``."""
    return param_type is bool


def is_primitive(param_type: Any) -> bool:
    """Returns True if a type is int, float, str or bool."""
    return param_type in (int, float, str, bool)


def get_argparse_param_type(parameter: inspect.Parameter) -> Callable[[str], object]:
    """Returns the argparse type of a parameter: int, float or str."""
    kind = plain(decode_optional(plain(parameter.annotation)))
    return kind if kind in (int, float) else str


def to_list(arg: str) -> list[str]:
    """Splits a text at commas and strips the elements; keeps empty elements, except for an empty string.

    >>> to_list("a, b,"), to_list("")
    (['a', 'b', ''], [])
    """
    if arg:
        return [each.strip() for each in arg.split(",")]
    return []


def none_throws(optional: T | None, message: str = "Unexpected `None`") -> T:
    """Returns a value that is not None.

    Raises:
        AssertionError: it is None.
    """
    if optional is None:
        raise AssertionError(message)
    return optional


__all__ = [
    "decode",
    "decode_from_string",
    "decode_optional",
    "get_argparse_param_type",
    "is_bool",
    "is_primitive",
    "none_throws",
    "to_list",
]
