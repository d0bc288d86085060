"""Arguments that are JSON."""

from __future__ import annotations

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
    return data if isinstance(data, list) else None
