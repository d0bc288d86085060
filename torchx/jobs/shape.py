"""Validators for values read from files: type, bounds and format."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from torchx.json_limits import Data

Check = Callable[[Any, str], Any]
"""Returns a checked value; takes the value and the name of its field."""

Kind = TypeVar("Kind")

LATEST = 250_000_000_000.0
"""Latest valid time in seconds since the epoch; later ones cannot be converted to every time zone."""

LARGEST_NUMBER = 1 << 53
"""Default maximum of integers: up to here, floats are exact."""

# characters that would break a line, a handle or a terminal
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SIGNAL = re.compile(r"SIG(?:[A-Z]{2,12}[0-9]{0,2}|[0-9]{1,3})")


def _typed(value: Any, name: str, kind: type[Kind], expected: str) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"`{name}` is not {expected}")
    return value


def text(value: Any, name: str) -> str:
    """Returns a text for display; replaces lone surrogates.

    Raises:
        TypeError: it is not a string.
    """
    string = _typed(value, name, str, "a string")
    if string.isascii():
        return string
    return string.encode("utf-8", "replace").decode("utf-8")


def handle_text(value: Any, name: str) -> str:
    """Returns a text that is valid in a handle.

    Raises:
        TypeError: it is not a string.
        ValueError: it has line breaks or other control characters.
    """
    string = _typed(value, name, str, "a string")
    if _CONTROL.search(string):
        raise ValueError(f"`{name}` has control characters")
    return string


def system_text(value: Any, name: str) -> str:
    """Returns a text that is valid as a path or an argument; it may have escaped bytes.

    Raises:
        TypeError: it is not a string.
        ValueError: it cannot be encoded.
    """
    string = _typed(value, name, str, "a string")
    if not string.isascii():
        string.encode("utf-8", "surrogateescape")
    return string


def system_texts(value: Any, name: str) -> list[str]:
    """Returns a list of texts that are valid as paths or arguments.

    Raises:
        TypeError: it is not a list of strings.
        ValueError: one of them cannot be encoded.
    """
    return [system_text(item, name) for item in sequence(value, name)]


def environment(value: Any, name: str) -> dict[str, str]:
    """Returns an environment.

    Raises:
        TypeError: it is not a mapping of strings to strings.
        ValueError: one of them cannot be encoded.
    """
    return {system_text(key, name): system_text(item, name) for key, item in mapping(value, name).items()}


def timestamp(value: Any, name: str) -> float:
    """Returns a time in seconds since the epoch.

    Raises:
        TypeError: it is not a number.
        ValueError: it is out of range.
    """
    return number(value, name, LATEST)


def number(value: Any, name: str, maximum: float) -> float:
    """Returns a number from 0 to a maximum.

    Raises:
        TypeError: it is not a number.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` is not a number")
    if not (0 <= value <= maximum) or math.isnan(value):
        raise ValueError(f"`{name}` is out of range")
    return value


def integer(value: Any, name: str, minimum: int = 0, maximum: int = LARGEST_NUMBER) -> int:
    """Returns an integer within bounds.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` is not an integer")
    if not minimum <= value <= maximum:
        raise ValueError(f"`{name}` is out of range")
    return value


def exit_code(value: Any, name: str) -> int | None:
    """Returns an exit code or None.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is out of range.
    """
    if value is None:
        return None
    return integer(value, name, -(1 << 31), (1 << 32) - 1)


def signal_name(value: Any, name: str) -> str | None:
    """Returns the name of a signal or None.

    Raises:
        TypeError: it is not a string.
        ValueError: it is not the name of a signal.
    """
    if value is None:
        return None
    string = _typed(value, name, str, "a string")
    if not _SIGNAL.fullmatch(string):
        raise ValueError(f"`{name}` is not the name of a signal")
    return string


def mapping(value: Any, name: str) -> Data:
    """Returns a JSON object.

    Raises:
        TypeError: it is not an object.
    """
    return _typed(value, name, dict, "an object")


def sequence(value: Any, name: str) -> list[Any]:
    """Returns a JSON list.

    Raises:
        TypeError: it is not a list.
    """
    return _typed(value, name, list, "a list")


def flag(value: Any, name: str) -> bool:
    """Returns a truth value.

    Raises:
        TypeError: it is not true or false.
    """
    return _typed(value, name, bool, "true or false")


# the first arguments of these are the checks of parts: `partial` makes a check of the rest


def or_none(check: Check, value: Any, name: str) -> Any:
    """Returns a checked value, or None."""
    if value is None:
        return None
    return check(value, name)


def list_of(check: Check, value: Any, name: str) -> list[Any]:
    """Returns a list of checked items."""
    return [check(item, name) for item in sequence(value, name)]


def tuple_of(check: Check, value: Any, name: str) -> tuple[Any, ...]:
    """Returns a tuple of checked items."""
    return tuple(check(item, name) for item in sequence(value, name))


def object_of(
    kind: Any, checks: Mapping[str, Check], value: Any, name: str, optional: Collection[str] | None = None
) -> Any:
    """Returns a named tuple of the checked fields of a JSON object; ignores others.

    Args:
        kind: the class of the named tuple.
        checks: the check of each field.
        value: the object.
        name: its name.
        optional: the fields that may be missing (default: all that have a default).

    Raises:
        KeyError: a field is missing.
        TypeError: a field has another type.
        ValueError: a field is invalid.
    """
    data = mapping(value, name)
    if optional is None:
        may_lack = kind._field_defaults
    else:
        may_lack = optional
    present = {field: each for field, each in checks.items() if field in data or field not in may_lack}
    return kind(**{field: each(data[field], field) for field, each in present.items()})
