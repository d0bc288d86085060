"""Conversion of arguments to and from JSON."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from torchx.discovery.types.converters import BadValue
from torchx.json_limits import load_json


def json_of(text: str, kind: type) -> Any:
    """Parses a JSON text of a type.

    Raises:
        BadValue: it is not JSON of that type.
    """
    try:
        data = load_json(text)
    except ValueError as error:
        raise BadValue(f"it is not JSON: {error}") from None
    if not isinstance(data, kind):
        raise BadValue()
    return data


def array_of(text: str) -> list[Any] | None:
    """Parses a JSON array; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        data = load_json(text)
    except ValueError:
        return None
    if isinstance(data, list):
        return data
    return None


def plain_data(value: Any) -> Any:
    """Converts a value to JSON data that :meth:`Converter.accept` accepts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_data(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(plain_data(k)): plain_data(v) for k, v in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Iterable):
        return [plain_data(each) for each in value]
    return str(value)
