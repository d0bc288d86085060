"""The former place of functions for texts."""

from __future__ import annotations

import re


def normalize_str(data: str) -> str:
    """Returns a text in lower case, without characters that names on Kubernetes cannot have.

    >>> normalize_str("-My_App.2")
    'myapp2'
    """
    return re.sub(r"[^a-z0-9-]", "", data.lower()).lstrip("-")
