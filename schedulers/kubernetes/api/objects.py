"""Objects of the API as plain data: their labels, annotations and times."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from torchx.json_limits import MOST_REPLICAS, Data
from torchx.json_limits import Object as Object
from torchx.json_shape import value_at as value_at

_MAX_LENGTH = 300
_INDEX = r"(?a)\d{1,6}"
_TIME = r"(?a)(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z"


def text_at(thing: Data, *path: str) -> str:
    """Returns the value at a path in an object as text; an empty string if it is absent, null or empty."""
    return str(value_at(thing, *path) or "")


def label(thing: Object, key: str) -> str:
    """Returns a label of an object, or an empty string."""
    return str((thing.get("metadata", {}).get("labels") or {}).get(key, ""))


def annotation(thing: Object, key: str) -> str:
    """Returns an annotation of an object, or an empty string."""
    return str((thing.get("metadata", {}).get("annotations") or {}).get(key, ""))


def conditions_of(thing: Object) -> dict[str, Data]:
    """Returns the conditions of an object by their types."""
    return {str(c.get("type")): c for c in value_at(thing, "status", "conditions") or []}


def true_conditions(thing: Object) -> dict[str, Data]:
    """Returns the conditions of an object that are true, by their types."""
    return {kind: c for kind, c in conditions_of(thing).items() if c.get("status") == "True"}


def count_of(text: str) -> int | None:
    """Returns the non-negative number in a label or an annotation, or None.

    >>> count_of("12"), count_of("\u00b2"), count_of("1234567")
    (12, None, None)
    """
    if text.isascii() and text.isdigit() and len(text) < 7:
        return int(text)
    return None


@functools.lru_cache(maxsize=64)
def indexes(text: str | None) -> frozenset[int]:
    """Parses a list of indexes such as ``0-2,5``; ignores invalid ones.

    >>> sorted(indexes("0-2,5")), sorted(indexes(None)), sorted(indexes("1,x,3-99999999999999,2"))
    ([0, 1, 2, 5], [], [1, 2])
    """
    result: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if re.fullmatch(_INDEX, first) and re.fullmatch(_INDEX, last) and len(result) < MOST_REPLICAS:
            result.update(range(int(first), min(int(last), MOST_REPLICAS) + 1))
    return frozenset(result)


def time_of(text: Any) -> datetime | None:
    """Parses a time of the API; returns None for a zero time.

    >>> time_of("2026-11-21T01:11:33.938975097Z").microsecond
    938975
    >>> time_of("1970-01-01T00:00:00Z") is None
    True
    """
    match = re.fullmatch(_TIME, str(text or ""))
    if match is None or match[1].startswith(("1970-01-01", "0001-")):
        return None
    micro = (match[2] or "")[:6].ljust(6, "0")
    try:
        return datetime.fromisoformat(f"{match[1]}.{micro}+00:00").astimezone()
    except (ValueError, OverflowError):  # an invalid date, such as February 30
        return None


def ended_indexes(main: Object) -> tuple[frozenset[int], frozenset[int]]:
    """Returns the indexes of a Job that have succeeded, and those that have failed."""
    status = main.get("status") or {}
    return indexes(status.get("completedIndexes")), indexes(status.get("failedIndexes"))


def owns(main: Object, pod: Object) -> bool:
    """Returns True if a pod is one of a job."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == main["metadata"].get("uid") for owner in owners)


def owned_pods(jobs: Sequence[Object], pods: Iterable[Object]) -> list[Object]:
    """Returns the pods of some jobs; others may have copies of their labels."""
    uids = {job["metadata"].get("uid") for job in jobs}
    return [
        pod
        for pod in pods
        if any(owner.get("uid") in uids for owner in pod["metadata"].get("ownerReferences") or [])
    ]


def parts_of(jobs: Sequence[Object], things: Sequence[Object]) -> list[Object]:
    """Returns the services, maps and secrets of some jobs; others may have copies of their labels.

    Without the right to change them, a submission sets no owners. Then they are older than all jobs.
    """
    oldest = min(map(created, jobs), default="")
    unowned = [thing for thing in things if not thing["metadata"].get("ownerReferences")]
    return owned_pods(jobs, things) + [thing for thing in unowned if created(thing) <= oldest]


def created(thing: Object) -> str:
    """Returns the time of creation of an object, to sort by it."""
    return str(thing["metadata"].get("creationTimestamp", ""))


def deleted(pod: Object) -> bool:
    """Returns True if the pod is being deleted."""
    return bool(pod.get("metadata", {}).get("deletionTimestamp"))


def short(text: Any) -> str:
    """Returns a text as one line, truncated.

    >>> short(" a\\n  b ")
    'a b'
    """
    line = " ".join(str(text or "").split())
    if len(line) <= _MAX_LENGTH:
        return line
    return line[: _MAX_LENGTH - 3] + "..."
