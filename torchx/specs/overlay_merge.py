"""Merges overlays into requests and into earlier overlays."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data

Overlay = dict[str, Any]
"""The content of an overlay: plain values; operators are keys."""

_PUT, _JOIN, _DEL = "__put__:", "__join__:", "__del__:"


class OverlayTypeError(UsageError, TypeError):
    """An overlay does not fit its request (a UsageError, also a TypeError)."""

    code = "invalid_overlay"


def PUT(key: str) -> str:  # noqa: N802 (its documented name)
    """As the key of an overlay: the value replaces the existing one instead of being merged.

    >>> base = {"args": ["a"]}
    >>> apply_overlay(base, {PUT("args"): ["b"]})
    >>> base
    {'args': ['b']}
    """
    return f"{_PUT}{key}"


def JOIN(key: str, *, on: str) -> str:  # noqa: N802
    """As the key of an overlay: items of a list are merged with those that have the same field ``on``.

    >>> base = {"containers": [{"name": "main", "image": "v1"}]}
    >>> apply_overlay(base, {JOIN("containers", on="name"): [{"name": "main", "cpu": 1}, {"name": "log"}]})
    >>> base
    {'containers': [{'name': 'main', 'image': 'v1', 'cpu': 1}, {'name': 'log'}]}
    """
    return f"{_JOIN}{key}:{on}"


def DEL(key: str) -> str:  # noqa: N802
    """As the key of an overlay: removes the key; the value (None by convention) is ignored.

    >>> base = {"keep": 1, "drop": 2}
    >>> apply_overlay(base, {DEL("drop"): None})
    >>> base
    {'keep': 1}
    """
    return f"{_DEL}{key}"


def operator_of(written: str) -> tuple[str, str, str]:
    """Splits the key of an overlay into operator (may be empty), key, and the field of JOIN.

    >>> operator_of(JOIN("containers", on="name"))[1:]
    ('containers', 'name')
    """
    for operator in (_PUT, _DEL):
        if written.startswith(operator):
            return operator, written.removeprefix(operator), ""
    if written.startswith(_JOIN):
        key, _, on = written.removeprefix(_JOIN).rpartition(":")
        return _JOIN, key, on
    return "", written, ""


def apply_overlay(base: Overlay, overlay: Data) -> None:
    """Merges an overlay into a request, in place; does not change the overlay.

    A mapping is merged key by key, a list is appended, a tuple replaces a list, any other value
    replaces the existing one (also None). :func:`PUT`, :func:`JOIN` and :func:`DEL` as keys change this.

    Args:
        base: the request; changed.
        overlay: the overlay.

    Raises:
        OverlayTypeError: a value is of another kind than the one it would replace.

    >>> base = {"spec": {"cpu": 1}, "tags": ["a"]}
    >>> apply_overlay(base, {"spec": {"memory": 2}, "tags": ["b"], "replicas": 3})
    >>> base
    {'spec': {'cpu': 1, 'memory': 2}, 'tags': ['a', 'b'], 'replicas': 3}
    """
    for written, value in overlay.items():
        operator, key, on = operator_of(written)
        if operator == _DEL:
            base.pop(key, None)
        elif operator == _PUT:
            base[key] = _done(value)
        elif operator == _JOIN:
            base[key] = _joined(key, on, base.get(key), value, resolve=True)
        elif base.get(key) is None:
            base[key] = _done(value)
        else:
            base[key] = _merged(key, base[key], value, resolve=True)


def add_overlay(noted: Overlay, overlay: Data) -> None:
    """Adds an overlay to an earlier one, in place, so that both can be applied as one.

    Keeps operators. The last of different operations on one key counts; the lists of two JOINs by the
    same field are joined, as is a list that precedes a JOIN.

    Raises:
        OverlayTypeError: a value is of another kind than the earlier one.

    >>> noted = {"args": ["a"], "cpu": 1}
    >>> add_overlay(noted, {PUT("args"): ["b"], "cpu": 2})
    >>> apply_overlay(request := {"args": ["x"]}, noted)
    >>> request
    {'args': ['b'], 'cpu': 2}
    """
    for written, value in overlay.items():
        operator, key, on = operator_of(written)
        for other in [k for k in noted if k != written and operator_of(k)[1] == key]:
            earlier = noted.pop(other)
            if operator == _JOIN and other == key:
                noted[written] = earlier
        if noted.get(written) is None or operator in (_PUT, _DEL):
            noted[written] = copy.deepcopy(value)
        elif operator == _JOIN:
            noted[written] = _joined(key, on, noted[written], value, resolve=False)
        else:
            noted[written] = _merged(key, noted[written], value, resolve=False)


def _merged(key: str, old: Any, new: Any, resolve: bool) -> Any:
    if isinstance(old, dict) and isinstance(new, Mapping):
        merged = copy.deepcopy(old)
        (apply_overlay if resolve else add_overlay)(merged, new)
        return merged
    if isinstance(old, list | tuple) and isinstance(new, tuple):
        return _copy(new, resolve)
    if isinstance(old, list | tuple) and isinstance(new, list):
        # a noted tuple, which will replace, with more to append: still a tuple
        return type(old)([*copy.deepcopy(old), *_copy(new, resolve)])
    containers = (dict, list, tuple)
    if new is not None and (isinstance(old, containers) or isinstance(new, containers)):
        raise OverlayTypeError(
            f"the overlay of `{key}` has type {type(new).__name__}, but type {type(old).__name__} is there"
        )
    return copy.deepcopy(new)


def _copy(value: Any, resolve: bool) -> Any:
    if resolve:
        return _done(value)
    return copy.deepcopy(value)


def _done(value: Any) -> Any:
    """Returns a copy of a value without a counterpart: operators applied, tuples as lists."""
    if isinstance(value, Mapping):
        fresh: Overlay = {}
        apply_overlay(fresh, value)
        return fresh
    if isinstance(value, list | tuple):
        return [_done(v) for v in value]
    return copy.deepcopy(value)


def _check_mappings(key: str, what: str, items: Any) -> None:
    if not isinstance(items, list | tuple) or not all(isinstance(item, Mapping) for item in items):
        raise OverlayTypeError(f"JOIN of `{key}` needs a list of mappings; the {what} has {items!r}")


def _joined(key: str, on: str, old: Any, new: Any, resolve: bool) -> list[Any]:
    old = [] if old is None else old
    _check_mappings(key, "request", old)
    _check_mappings(key, "overlay", new)
    joined = copy.deepcopy(list(old))
    for item in new:
        same = [there for there in joined if on in item and there.get(on) == item[on]]
        if not same:
            joined.append(_copy(dict(item), resolve))
            continue
        # the fields of the item replace those of its match; only operators merge deeper
        for written, value in item.items():
            if resolve and operator_of(written)[0]:
                apply_overlay(same[0], {written: value})
            else:
                same[0][written] = _copy(value, resolve)
    return joined
