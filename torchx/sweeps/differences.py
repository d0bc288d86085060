"""Differences of plain data: the application of a run, as the parts in which it differs from a template."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

Change = list[Any]
"""A path of keys and indices, and the value there."""

_FREE = ("args", "env")
"""The fields of a role in which the runs of one object may differ."""


def changes(template: Any, data: Any) -> list[Change]:
    """Returns the parts in which data differs from a template.

    >>> changes({"a": [1, 2], "b": 3}, {"a": [1, 5], "b": 3})
    [[['a', 1], 5]]
    """
    found: list[Change] = []
    _compare(template, data, [], found)
    return found


def _compare(template: Any, data: Any, path: list[Any], found: list[Change]) -> None:
    if template == data and type(template) is type(data):
        return
    if isinstance(template, dict) and isinstance(data, dict) and template.keys() == data.keys():
        for key, value in data.items():
            _compare(template[key], value, [*path, key], found)
    elif isinstance(template, list) and isinstance(data, list) and len(template) == len(data):
        for index, (before, value) in enumerate(zip(template, data, strict=True)):
            _compare(before, value, [*path, index], found)
    else:
        found.append([path, data])


def apply(template: Any, found: list[Change]) -> Any:
    """Returns a copy of a template with changes of :func:`changes`.

    Raises:
        ValueError: a change does not fit the template.

    >>> apply({"a": [1, 2], "b": 3}, [[["a", 1], 5]])
    {'a': [1, 5], 'b': 3}
    """
    data = copy.deepcopy(template)
    for path, value in found:
        if not path:
            return value
        inner = data
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"there is no {path!r}") from error
    return data


def is_free(path: Sequence[Any]) -> bool:
    """Returns True if the runs of one object of an engine may differ in a part of their applications.

    >>> is_free(["roles", 0, "args", 1]), is_free(["roles", 0, "image"])
    (True, False)
    """
    if path[:1] in (["metadata"], ["secrets"]):
        return True
    return len(path) > 2 and path[0] == "roles" and path[2] in _FREE
