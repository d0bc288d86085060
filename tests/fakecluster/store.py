"""The objects of the fake cluster, their versions, and what has happened to them."""

from __future__ import annotations

import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

AHEAD = 0.0
"""Seconds by which the clock of the cluster is ahead of that of its clients."""
Object = dict[str, Any]
T = TypeVar("T")


def now() -> str:
    return datetime.fromtimestamp(clock(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock() -> float:
    return time.time() + AHEAD


def seconds_of(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()


def copied(data: T) -> T:
    """Returns a deep copy of plain data, in a quarter of the time of ``copy.deepcopy``."""
    return pickle.loads(pickle.dumps(data, pickle.HIGHEST_PROTOCOL))  # type: ignore[no-any-return]


class Refused(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def body(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


class Store:
    """Objects by collection (a path such as ``/api/v1/namespaces/research/pods``) and name."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 100
        self.oldest = 0
        self.happened: list[tuple[int, str, str, Object]] = []
        self._objects: dict[str, dict[str, Object]] = {}

    def create(self, collection: str, thing: Object) -> Object:
        resource = collection.rsplit("/", 1)[1]
        with self.changed:
            metadata = thing.setdefault("metadata", {})
            if "name" not in metadata:
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            name = metadata["name"]
            if name in self._objects.setdefault(collection, {}):
                raise Refused(
                    409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, kind=resource
                )
            place = re.search("/namespaces/([^/]+)/", collection)
            metadata.update(
                {
                    "uid": str(uuid.uuid4()),
                    "creationTimestamp": now(),
                    **({"namespace": place[1]} if place else {}),
                }
            )
            self._objects[collection][name] = thing
            self._note("ADDED", collection, thing)
            return copied(thing)

    def get(self, collection: str, name: str) -> Object:
        with self.changed:
            found = self._objects.get(collection, {}).get(name)
            if found is None:
                resource = collection.rsplit("/", 1)[1]
                group = re.match("/apis/([^/]+)/", collection)
                full_name = f"{resource}.{group[1]}" if group else resource
                raise Refused(404, "NotFound", f'{full_name} "{name}" not found', name=name, kind=resource)
            return copied(found)

    def list(self, collection: str) -> list[Object]:
        with self.changed:
            return copied(list(self._objects.get(collection, {}).values()))

    def collections(self, resource: str = "") -> list[str]:
        with self.changed:
            return [path for path in self._objects if path.endswith("/" + resource) or not resource]

    def update(self, collection: str, name: str, change: Callable[[Object], None]) -> Object:
        with self.changed:
            found = self.get(collection, name)
            before = copied(found)
            change(found)
            if found != before:
                self._objects[collection][name] = found
                self._note("MODIFIED", collection, found)
            return copied(found)

    def remove(self, collection: str, name: str) -> None:
        with self.changed:
            found = self._objects.get(collection, {}).pop(name, None)
            if found is not None:
                self._note("DELETED", collection, found)

    def clear(self) -> None:
        """Removes all objects."""
        with self.changed:
            for collection, objects in self._objects.items():
                for name in list(objects):
                    self.remove(collection, name)

    def forget(self) -> None:
        """Drops the events so far: a request for them is answered with "too old"."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.happened.clear()

    def _note(self, kind: str, collection: str, thing: Object) -> None:
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        self.happened.append((self.version, kind, collection, copied(thing)))
        self.changed.notify_all()


def merge(thing: Object, change: Object) -> None:
    """Applies a merge patch."""
    for key, value in change.items():
        if value is None:
            thing.pop(key, None)
        elif isinstance(value, dict):
            merge(thing.setdefault(key, {}), value)
        else:
            thing[key] = value


def selected(thing: Object, labels: str, fields: str) -> bool:
    """Tells whether an object is chosen by a label selector and a field selector."""
    own = thing["metadata"].get("labels") or {}
    among = re.fullmatch(r"(\S+) in \((.*)\)", labels)
    if among:
        return own.get(among[1]) in among[2].split(",")
    for part in filter(None, labels.split(",")):
        key, equals, value = part.partition("=")
        if key not in own or (equals and own[key] != value.lstrip("=")):
            return False
    for part in filter(None, fields.split(",")):
        match = re.fullmatch(r"([\w.]+?)(!=|==?)(.*)", part)
        assert match, part
        found: Any = thing
        for step in match[1].split("."):
            found = (found or {}).get(step)
        if (str(found or "") == match[3]) != (match[2] != "!="):
            return False
    return True


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Object:
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": now(),
        "lastTransitionTime": now(),
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }
