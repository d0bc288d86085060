"""Application ids: a readable name and a random suffix."""

from __future__ import annotations

import os
import re

# no vowels, to avoid accidental words; the first character is a letter, as in host names
FIRST = "bcdfghjklmnpqrstvwxz"
REST = "123456789" + FIRST


def random_id() -> str:
    """Returns 64 random bits as 11 to 14 letters and digits, starting with a letter.

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
    """Returns a name with a random suffix; characters not allowed in a handle become dashes.

    >>> make_unique("a b/c")[:6]
    'a-b-c-'
    """
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'app'}-{random_id()}"
