"""Format amounts: bytes, CPU cores, shares, names of replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.printable import one_line, ranges

Value = TypeVar("Value")


def size(count: int) -> str:
    """Formats a number of bytes.

    >>> size(900), size(34_500_000), size(2_000_000_000)
    ('900 B', '34.5 MB', '2.0 GB')
    """
    number = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            if unit == "B":
                return f"{number:.0f} B"
            return f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def cores(count: float) -> str:
    """Formats a number of CPU cores.

    >>> cores(3.14159), cores(0.044)
    ('3.1', '0.04')
    """
    if count >= 1:
        return f"{count:.1f}"
    return f"{count:.2f}"


def percent(share: float) -> str:
    """Formats a share.

    >>> percent(0.853)
    '85%'
    """
    return f"{share:.0%}"


def rate(count: float) -> str:
    """Formats a number of bytes per second.

    >>> rate(34_500_000.0)
    '34.5 MB/s'
    """
    return f"{size(round(count))}/s"


def written(value: Value | None, form: Callable[[Value], str]) -> str:
    """Formats a value; an unknown one, which is None, as an empty string.

    >>> written(0.5, percent), written(None, percent)
    ('50%', '')
    """
    if value is None:
        return ""
    return form(value)


def names_of(replicas: Iterable[tuple[str, int]]) -> str:
    """Returns the names of replicas, given as role and id, with ranges of ids.

    >>> names_of([("a", 0), ("a", 1), ("b", 0)])
    'a/0-1,b/0'
    """
    ids: dict[str, set[int]] = {}
    for role, replica in replicas:
        ids.setdefault(role, set()).add(replica)
    return ",".join(f"{one_line(role)}/{ranges(numbers)}" for role, numbers in ids.items())
