"""Application ids: a readable name and a random suffix."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# no vowels, to avoid accidental words; the first character is a letter, as in host names
FIRST = "bcdfghjklmnpqrstvwxz"
REST = "123456789" + FIRST


def random_uint64() -> int:
    """Returns a random number of 64 bits, independent of the seed of ``random``."""
    return int.from_bytes(os.urandom(8), "big")


def random_id(max_length: int | None = None) -> str:
    """Returns 64 random bits as 11 to 14 letters and digits, starting with a letter.

    >>> random_id()[0] in FIRST, len(random_id(4))
    (True, 4)

    Args:
        max_length: the maximum length (default: all 64 bits).
    """
    number, first = divmod(random_uint64(), len(FIRST))
    text = FIRST[first]
    while number:
        number, digit = divmod(number, len(REST))
        text += REST[digit]
    return text.ljust(11, REST[0])[:max_length]


_assigned = threading.local()


@contextmanager
def assigned(app_id: str) -> Iterator[None]:
    """Makes :func:`make_unique` return an id that the caller has recorded before the submission.

    >>> with assigned("sweep-b4zt1k8s-7"):
    ...     make_unique("sweep")
    'sweep-b4zt1k8s-7'
    """
    before = _given()
    _assigned.app_id = app_id
    try:
        yield
    finally:
        _assigned.app_id = before


def _given() -> str:
    return str(getattr(_assigned, "app_id", ""))


def make_unique(name: str, string_length: int = 0) -> str:
    """Returns a name with a random suffix; characters not allowed in a handle become dashes.

    >>> make_unique("a b/c")[:6]
    'a-b-c-'

    Args:
        name: the name.
        string_length: the maximum length of the suffix; 0 for 11 to 14 characters.
    """
    if given := _given():
        return given
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'app'}-{random_id(string_length or None)}"
