"""Reading untrusted JSON within limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from torchx.lazy import lazy_imports

with lazy_imports:  # other modules need only the limits
    import json

K = TypeVar("K")
V = TypeVar("V")

Object = dict[str, Any]
"""An object in JSON, or in the API of an engine, as plain data."""

Data = Mapping[str, Any]
"""Such an object that is only read."""

LARGEST = 16 << 20
"""Maximum characters of a JSON text."""

DEEPEST = 100
"""Levels of objects and arrays within one another: what handles them later calls itself for each level."""

MOST_REPLICAS = 100_000
"""Maximum number of replicas of an application, and of retries of a role."""


def without_none(values: Mapping[K, V | None]) -> dict[K, V]:
    """Returns the values that are not None."""
    return {key: value for key, value in values.items() if value is not None}


def without_empty(values: Mapping[K, V]) -> dict[K, V]:
    """Returns the values that are neither empty nor zero."""
    return {key: value for key, value in values.items() if value}


def compact_json(data: object) -> str:
    """Returns data as JSON without spaces."""
    return json.dumps(data, separators=(",", ":"))


def load_json(text: str) -> Any:
    """Returns the data of a JSON text.

    Raises:
        ValueError: it is not valid, too large or too deeply nested; the message says which.

    >>> load_json("[1]")
    [1]
    >>> load_json("[" * 200 + "]" * 200)
    Traceback (most recent call last):
    ...
    ValueError: nested more than 100 levels deep
    """
    if len(text) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} characters")
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} levels deep") from None
    check_depth(data)
    return data


def check_depth(data: Any) -> None:
    """Rejects data that is nested too deeply.

    Raises:
        ValueError: it is nested too deeply.
    """
    level, depth = [data], 0
    while level:
        depth += 1
        if depth > DEEPEST + 1:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        level = [
            inner
            for each in level
            if isinstance(each, (dict, list))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
