"""Words that are JSON."""

from __future__ import annotations

import json
from typing import Any

from torchx.discovery.shapes import BadValue


def json_of(text: str, kind: type) -> Any:
    """Returns the datum of a kind that a text is.

    Raises:
        BadValue: it is none.
    """
    try:
        data = json.loads(text)
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
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, list) else None
