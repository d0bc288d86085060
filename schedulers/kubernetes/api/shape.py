"""Type checks for objects of a cluster.

A cluster validates only its built-in kinds and no annotations. Fields of a wrong type are dropped when
objects are read, so that no other code has to expect them.
"""

from __future__ import annotations

from typing import Any

from torchx.json_shape import Misfit, alternatives, drop_misfits, name_of
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
    "shareProcessNamespace": bool,
    "subdomain": str,
    **dict.fromkeys(("activeDeadlineSeconds", "terminationGracePeriodSeconds"), int),
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
OBJECT = {
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
    wrong = drop_misfits(data, OBJECT)
    metadata = data.get("metadata") or {}
    if not metadata.get("name"):
        return None
    metadata.setdefault("uid", metadata["name"])
    # in the API, null and an absent field are the same
    serious = [each for each in wrong if each.value is not None or each.path.endswith("]")]
    first = next((each for each in serious if not each.path.startswith("metadata.")), None)
    if first is not None:
        data[MALFORMED] = _sentence(first)
    return data


_NAMES = {dict: "a mapping", int: "a number", bool: "a truth value"}


def _sentence(misfit: Misfit) -> str:
    expected = " or ".join(dict.fromkeys(name_of(each, _NAMES) for each in alternatives(misfit.shape)))
    actual = name_of(type(misfit.value), _NAMES)
    if actual == expected:
        actual = "out of range"
    return f"`{misfit.path[:100]}` is {actual}, expected {expected}"
