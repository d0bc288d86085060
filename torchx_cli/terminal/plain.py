"""Convert objects to plain data for JSON and YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Any


def to_plain(value: Any) -> Any:
    """Converts a value to dictionaries, lists, strings, numbers, booleans and None.

    Times become ISO 8601, durations seconds, sets sorted lists; other objects are converted with
    ``to_dict()`` or ``str()``. Fields of dataclasses with ``repr=False`` are omitted.

    >>> to_plain({"when": timedelta(minutes=1), "path": PurePath("a/b"), "all": {2, 1}})
    {'when': 60.0, 'path': 'a/b', 'all': [1, 2]}
    """
    if isinstance(value, Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(to_plain(key)): to_plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = (field.name for field in dataclasses.fields(value) if field.repr)
        return {name: to_plain(getattr(value, name)) for name in shown}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=str)
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict):
        return to_plain(to_dict())
    return str(value)
