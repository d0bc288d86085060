"""Conversion of names between snake case and camel case."""

from __future__ import annotations

import re

_CAMEL_BREAK = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"


def snake_to_camel(name: str) -> str:
    """Turns ``some_name`` into ``someName``; underscores at either end stay.

    >>> snake_to_camel("cluster_name"), snake_to_camel("_private_name")
    ('clusterName', '_privateName')
    """
    core = name.strip("_")
    if not core:
        return name
    first, *rest = core.split("_")
    start = len(name) - len(name.lstrip("_"))
    camel = first + "".join(word[:1].upper() + word[1:] for word in rest)
    return name[:start] + camel + name[start + len(core) :]


def camel_to_snake(name: str) -> str:
    """Turns ``someName`` into ``some_name``; leaves snake case unchanged.

    >>> camel_to_snake("clusterName"), camel_to_snake("HTTPServer"), camel_to_snake("a_b")
    ('cluster_name', 'http_server', 'a_b')
    """
    return re.sub(_CAMEL_BREAK, "_", name).lower()
