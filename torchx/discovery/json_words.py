"""Words that are JSON."""

from __future__ import annotations

from typing import Any

from torchx.discovery.shapes import BadValue
from torchx.json_limits import load_json


def json_of(text: str, kind: type) -> Any:
    """Returns the datum of a kind that a text is.

    Raises:
        BadValue: it is none.
    """
    try:
        data = load_json(text)
    except ValueError as error:
        raise BadValue(f"it is no JSON: {error}") from None
    if not isinstance(data, kind):
        raise BadValue()
    return data


def array_of(text: str) -> list[Any] | None:
    """Returns the JSON array that a text is, None where it is none."""
    if not text.lstrip().startswith("["):
        return None
    try:
        data = load_json(text)
    except ValueError:
        return None
    return data if isinstance(data, list) else None
