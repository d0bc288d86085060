"""Pods without the fields that are not read: a tenth of their JSON, as an application may have thousands."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

from torchx.json_shape import LARGEST_NUMBER, Check, flag, integer, text
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.api.shape import MALFORMED, shaped

_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
_STATUS = ("phase", "reason", "message", "startTime")
_SPEC = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "shareProcessNamespace", "subdomain")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_CONTAINER = ("name", "ready", "started", "restartCount")
_RUNNING = ("startedAt",)
_WAITING = ("reason", "message")
_ENDED = ("exitCode", "reason", "message", "startedAt", "finishedAt")
_STATES = {"running": _RUNNING, "waiting": _WAITING, "terminated": _ENDED}
_OWNER = ("kind", "name", "uid", "controller")
_OURS = "torchx.pytorch.org/"
_KEPT = (
    "batch.kubernetes.io/job-",
    "jobset.sigs.k8s.io/restart-attempt",
    "volcano.sh/job-retry-count",
    _OURS,
)
INDEX = "batch.kubernetes.io/job-completion-index"
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("ready", "started", "controller", "shareProcessNamespace"), flag),
    **dict.fromkeys(
        ("exitCode", "restartCount", "activeDeadlineSeconds", "terminationGracePeriodSeconds"),
        partial(integer, minimum=-LARGEST_NUMBER),
    ),
}
"""The checks of fields that are not texts."""


class SmallPods:
    """Reduces and validates the pods of lists; equal parts of different pods are one object in memory.

    The parts are not to be changed.
    """

    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}

    def __call__(self, data: Any) -> Object | None:
        """Returns a pod with the fields that are read, or None if it has no name.

        Args:
            data: the pod as received; one with fields of a wrong type is treated as any other object.
        """
        try:
            return {
                "metadata": self._metadata(data["metadata"]),
                "spec": self._spec(data["spec"]),
                "status": self._status(data["status"]),
            }
        except (TypeError, ValueError, KeyError, AttributeError):
            return shaped(data)

    def _metadata(self, metadata: Object) -> Object:
        own: Object = {
            key: _checked(key, metadata[key]) for key in _METADATA if metadata.get(key) is not None
        }
        annotations, labels = (_kept(metadata.get(key) or {}) for key in ("annotations", "labels"))
        if annotations.get(INDEX) == labels.get(INDEX):
            labels.pop(INDEX, None)  # so that those of all replicas are equal
        own["labels"] = self._parts.setdefault(tuple(labels.items()), labels)
        own["annotations"] = annotations
        own["ownerReferences"] = [
            self._picked(owner, _OWNER) for owner in metadata.get("ownerReferences") or []
        ]
        if not own["name"] or "uid" not in own:
            raise KeyError("name")
        return own

    def _status(self, status: Object) -> Object:
        state: Object = {key: _checked(key, status[key]) for key in _STATUS if status.get(key) is not None}
        state["conditions"] = [self._picked(each, _CONDITION) for each in status.get("conditions") or []]
        for key in ("containerStatuses", "initContainerStatuses"):
            if status.get(key):
                state[key] = [self._container(each) for each in status[key]]
        return state

    def _spec(self, spec: Object) -> Object:
        part: Object = {key: _checked(key, spec[key]) for key in _SPEC if spec.get(key) is not None}
        if spec.get("nodeName"):
            part["nodeName"] = _checked("nodeName", spec["nodeName"])
        containers = spec.get("containers") or []
        key = repr([(each["name"], each.get("resources")) for each in containers])
        found = self._parts.get(key)
        if found is None:
            whole = {
                "spec": {
                    "containers": [{k: each.get(k) for k in ("name", "resources")} for each in containers]
                }
            }
            checked = shaped({"metadata": {"name": "pod"}, **whole})
            if checked is None or MALFORMED in checked:
                raise TypeError("containers")
            found = self._parts[key] = checked["spec"]["containers"]
        part["containers"] = found
        return part

    def _container(self, status: Object) -> Object:
        base = self._picked(status, _CONTAINER)
        states = tuple(
            (key, name, self._picked(value, _STATES[name]))
            for key in ("state", "lastState")
            for name, value in (status.get(key) or {}).items()
            if value is not None
        )
        key = (id(base), *((where, name, id(part)) for where, name, part in states))
        found = self._parts.get(key)
        if found is None:
            found = {**base, "state": {}, "lastState": {}}
            for where, name, part in states:
                found[where][name] = part
            self._parts[key] = found
        return found

    def _picked(self, data: Object, keys: tuple[str, ...]) -> Object:
        """Returns some fields of an object; equal ones are one object."""
        values = tuple([data.get(key) for key in keys])
        found: Object | None = self._parts.get((keys, values))
        if found is None:
            pairs = zip(keys, values, strict=True)
            found = {key: _checked(key, value) for key, value in pairs if value is not None}
            self._parts[keys, values] = found
        return found


def _checked(key: str, value: Any) -> Any:
    """Returns a value of the expected type that can be printed.

    Raises:
        TypeError, ValueError: it has another type, or is out of range.
    """
    check: Check = _CHECKS.get(key, text)
    return check(value, key)


def _kept(texts: Object) -> Object:
    return {key: _checked("", value) for key, value in texts.items() if key.startswith(_KEPT)}
