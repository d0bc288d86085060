"""Checks of values that were read from a file: each is of its type and within its bounds, or an error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

LATEST = 250_000_000_000.0
"""Seconds since the epoch; later times cannot be shown in every time zone."""

LARGEST_NUMBER = 1 << 53
"""A number up to here can be added to and divided without surprise."""

# what would break a line, a handle or a terminal
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SIGNAL = re.compile(r"SIG(?:[A-Z]{2,12}[0-9]{0,2}|[0-9]{1,3})")


def text(value: Any, name: str) -> str:
    """Returns a text for people; what no terminal can be given, half of a character, is replaced.

    Raises:
        TypeError: it is no text.
    """
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is not a string")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def word(value: Any, name: str) -> str:
    """Returns a text that can stand in a handle.

    Raises:
        TypeError: it is no text.
        ValueError: it has line breaks or other control characters.
    """
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is not a string")
    if _CONTROL.search(value):
        raise ValueError(f"`{name}` has control characters")
    return value


def system_text(value: Any, name: str) -> str:
    """Returns a text that can be a path or an argument of a program, bytes that are no UTF-8 included.

    Raises:
        TypeError: it is no text.
        ValueError: it stands for no bytes.
    """
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is not a string")
    if not value.isascii():
        value.encode("utf-8", "surrogateescape")
    return value


def system_texts(value: Any, name: str) -> list[str]:
    """Returns a list of such texts.

    Raises:
        TypeError: it is no list of texts.
        ValueError: one of them stands for no bytes.
    """
    if not isinstance(value, list):
        raise TypeError(f"`{name}` is not a list")
    return [system_text(each, name) for each in value]


def environment(value: Any, name: str) -> dict[str, str]:
    """Returns an environment.

    Raises:
        TypeError: it is no mapping of texts to texts.
        ValueError: one of them stands for no bytes.
    """
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` is not an object")
    return {system_text(key, name): system_text(each, name) for key, each in value.items()}


def moment(value: Any, name: str) -> float:
    """Returns a time in seconds since the epoch.

    Raises:
        TypeError: it is no number.
        ValueError: it is out of range.
    """
    return number(value, name, LATEST)


def number(value: Any, name: str, most: float) -> float:
    """Returns a number from 0 to a bound.

    Raises:
        TypeError: it is no number.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` is not a number")
    if not (0 <= value <= most) or math.isnan(value):
        raise ValueError(f"`{name}` is out of range")
    return value


def whole(value: Any, name: str, least: int = 0, most: int = LARGEST_NUMBER) -> int:
    """Returns a whole number within bounds.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"`{name}` is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"`{name}` is out of range")
    return value


def exit_code(value: Any, name: str) -> int | None:
    """Returns an exit code, None for none.

    Raises:
        TypeError: it is no whole number.
        ValueError: no program can end with it.
    """
    return None if value is None else whole(value, name, -(1 << 31), (1 << 32) - 1)


def signal_name(value: Any, name: str) -> str | None:
    """Returns the name of a signal, None for none.

    Raises:
        TypeError: it is no text.
        ValueError: no signal has such a name.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"`{name}` is not a string")
    if not _SIGNAL.fullmatch(value):
        raise ValueError(f"`{name}` is not the name of a signal")
    return value


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Returns an object of JSON.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, dict):
        raise TypeError(f"`{name}` is not an object")
    return value


def sequence(value: Any, name: str) -> list[Any]:
    """Returns a list of JSON.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, list):
        raise TypeError(f"`{name}` is not a list")
    return value
