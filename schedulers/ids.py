"""Ids of applications: a name that people know and a random end that nobody else has."""

from __future__ import annotations

import os
import re

# no vowels, so that no word comes about; the first character is a letter, as names of hosts want it
FIRST = "bcdfghjklmnpqrstvwxz"
REST = "123456789" + FIRST


def random_id() -> str:
    """Returns 64 random bits as 11 to 14 letters and digits, a letter first.

    >>> random_id()[0] in FIRST
    True
    """
    number, first = divmod(int.from_bytes(os.urandom(8), "big"), len(FIRST))
    text = FIRST[first]
    while number:
        number, digit = divmod(number, len(REST))
        text += REST[digit]
    return text.ljust(11, REST[0])


def make_unique(name: str) -> str:
    """Returns a name with a random id behind it; what cannot stand in a handle becomes a dash.

    >>> make_unique("a b/c")[:6]
    'a-b-c-'
    """
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'app'}-{random_id()}"
