"""Type checks for objects of a cluster.

A cluster validates only its built-in kinds and no annotations. Fields of a wrong type are dropped when
objects are read, so that no other code has to expect them.
"""

from __future__ import annotations

from typing import Any

from torchx.json_limits import Data
from torchx.json_shape import LARGEST_NUMBER as LARGEST_NUMBER
from torchx.schedulers.kubernetes.api.objects import Object

MALFORMED = "torchx.pytorch.org/malformed"
"""Key that :func:`shaped` adds to an object with a wrong type in its status or specification."""


_CONDITION = {"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}
_ENDED = {"exitCode": int, "reason": str, "message": str, "startedAt": str, "finishedAt": str}
_STATE = {"waiting": {"reason": str, "message": str}, "running": {"startedAt": str}, "terminated": _ENDED}
_CONTAINER = {
    "name": str,
    "ready": bool,
    "started": bool,
    "restartCount": int,
    "state": _STATE,
    "lastState": _STATE,
}
_METADATA = {
    "name": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "labels": {"*": str},
    "annotations": {"*": str},
    "ownerReferences": [{"kind": str, "name": str, "uid": str, "controller": bool}],
}
_STATUS = {
    "phase": str,
    "reason": str,
    "message": str,
    "conditions": [_CONDITION],
    "containerStatuses": [_CONTAINER],
    "initContainerStatuses": [_CONTAINER],
    "startTime": str,
    "completionTime": str,
    "completedIndexes": str,
    "failedIndexes": str,
    **dict.fromkeys(("active", "ready", "succeeded", "failed", "terminating"), int),
    **dict.fromkeys(("restarts", "retryCount"), int),
    "state": {"phase": str, "reason": str, "message": str, "lastTransitionTime": str},
}
_SPEC = {
    "suspend": bool,
    "completions": int,
    "parallelism": int,
    "backoffLimitPerIndex": int,
    "maxFailedIndexes": int,
    "podFailurePolicy": {"rules": [{"action": str, "onPodConditions": [{"type": str}]}]},
    "nodeName": str,
    "containers": [{"name": str, "resources": {"limits": {"*": (str, int, float)}}}],
    "template": {"metadata": {"labels": {"*": str}}, "spec": {"containers": [{"name": str}]}},
    "replicatedJobs": [{"name": str, "template": {"spec": {"*": object}}}],
    "tasks": [{"name": str, "template": {"metadata": {"labels": {"*": str}}}}],
}
_OBJECT = {
    "metadata": _METADATA,
    "spec": _SPEC,
    "status": _STATUS,
    # of events
    "involvedObject": {"name": str},
    **dict.fromkeys(("type", "reason", "message", "lastTimestamp", "eventTime"), str),
}


def shaped(data: Any) -> Object | None:
    """Returns an object of a cluster with fields of a wrong type removed, or None if it has no name.

    Args:
        data: the object; changed in place. The key MALFORMED describes the first removed field outside
            the metadata.

    >>> found = shaped({"metadata": {"name": "a", "labels": {"b": 1}}, "status": {"active": "x"}})
    >>> found["metadata"], found["status"], found[MALFORMED]
    ({'name': 'a', 'labels': {}, 'uid': 'a'}, {}, '`status.active` is a string, expected a number')
    """
    if not isinstance(data, dict):
        return None
    data.pop(MALFORMED, None)
    wrong: list[str] = []
    _drop(data, _OBJECT, "", wrong)
    metadata = data.get("metadata") or {}
    if not metadata.get("name"):
        return None
    metadata.setdefault("uid", metadata["name"])
    serious = [each for each in wrong if not each.startswith("`metadata.")]
    if serious:
        data[MALFORMED] = serious[0]
    return data


def _drop(data: Any, shape: Any, where: str, wrong: list[str]) -> bool:
    """Returns True if a value has its shape; removes parts without theirs, in place."""
    if shape is object:
        return True
    if isinstance(shape, tuple):
        return any(_drop(data, kind, where, wrong) for kind in shape)
    if isinstance(shape, dict):
        return isinstance(data, dict) and _fields(data, shape, where, wrong)
    if isinstance(shape, list):
        return isinstance(data, list) and _items(data, shape[0], where, wrong)
    if shape is int:
        return isinstance(data, int) and not isinstance(data, bool) and abs(data) <= LARGEST_NUMBER
    if shape is float:
        return isinstance(data, float) and abs(data) <= LARGEST_NUMBER
    return isinstance(data, shape)


def _fields(data: Object, shape: Data, where: str, wrong: list[str]) -> bool:
    every = shape.get("*")
    for key in [*data] if every is not None else [key for key in shape if key in data]:
        expected = shape.get(key, every)
        value = data[key]
        if value is None:
            del data[key]  # in the API, null and an absent field are the same
        elif _drop(value, expected, f"{where}.{key}", wrong):
            if isinstance(value, str) and not value.isascii():
                data[key] = value.encode("utf-8", "replace").decode()  # a lone surrogate cannot be printed
        else:
            wrong.append(_sentence(f"{where}.{key}", value, expected))
            del data[key]
    return True


def _items(data: list[Any], shape: Any, where: str, wrong: list[str]) -> bool:
    bad = [number for number, item in enumerate(data) if not _drop(item, shape, f"{where}[{number}]", wrong)]
    for number in reversed(bad):
        wrong.append(_sentence(f"{where}[{number}]", data[number], shape))
        del data[number]
    return True


_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "null",
}


def _sentence(where: str, data: Any, shape: Any) -> str:
    expected = _expected(shape)
    actual = _NAMES.get(type(data), type(data).__name__)
    if actual == expected:
        actual = "out of range"
    return f"`{where.lstrip('.')[:100]}` is {actual}, expected {expected}"


def _expected(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(dict.fromkeys(_expected(kind) for kind in shape))
    return _NAMES[type(shape) if isinstance(shape, (dict, list)) else shape]
