"""Objects of the API as plain data: their labels, annotations and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Object = dict[str, Any]
"""An object of the API as plain data."""
_MAX_LENGTH = 300
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z", re.ASCII)


def label(thing: Object, key: str) -> str:
    """Returns a label of an object, or an empty string."""
    return str((thing.get("metadata", {}).get("labels") or {}).get(key, ""))


def annotation(thing: Object, key: str) -> str:
    """Returns an annotation of an object, or an empty string."""
    return str((thing.get("metadata", {}).get("annotations") or {}).get(key, ""))


def conditions_of(thing: Object) -> dict[str, Mapping[str, Any]]:
    """Returns the conditions of an object by their types."""
    return {str(c.get("type")): c for c in (thing.get("status") or {}).get("conditions") or []}


def true_conditions(thing: Object) -> dict[str, Mapping[str, Any]]:
    """Returns the conditions of an object that are true, by their types."""
    return {kind: c for kind, c in conditions_of(thing).items() if c.get("status") == "True"}


def count_of(text: str) -> int | None:
    """Returns the non-negative number in a label or an annotation, or None.

    >>> count_of("12"), count_of("\u00b2"), count_of("1234567")
    (12, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def time_of(text: Any) -> datetime | None:
    """Parses a time of the API; returns None for a zero time.

    >>> time_of("2026-11-21T01:11:33.938975097Z").microsecond
    938975
    >>> time_of("1970-01-01T00:00:00Z") is None
    True
    """
    match = _TIME.fullmatch(str(text or ""))
    if match is None or match[1].startswith(("1970-01-01", "0001-")):
        return None
    micro = (match[2] or "")[:6].ljust(6, "0")
    try:
        return datetime.fromisoformat(f"{match[1]}.{micro}+00:00").astimezone()
    except (ValueError, OverflowError):  # an invalid date, such as February 30
        return None


def owns(main: Object, pod: Object) -> bool:
    """Returns True if a pod is one of a job."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == main["metadata"].get("uid") for owner in owners)


def deleted(pod: Object) -> bool:
    """Returns True if the pod is being deleted."""
    return bool(pod.get("metadata", {}).get("deletionTimestamp"))


def short(text: Any) -> str:
    """Returns a text as one line, truncated.

    >>> short(" a\\n  b ")
    'a b'
    """
    line = " ".join(str(text or "").split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 3] + "..."
