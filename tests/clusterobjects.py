"""Objects of a cluster as plain data, and copies of them with one value replaced: for tests of readers."""

from __future__ import annotations

import copy
from typing import Any

from manifests import facts_of, made, role

from torchx.schedulers.kubernetes.names import DISRUPTED, ROLE_INDEX
from torchx.specs.app import AppDef


def a_job() -> dict[str, Any]:
    job = facts_of(made(AppDef("a", [role(args=["x"], env={"A": "1"}, num_replicas=3)]))).mains[0]
    job["metadata"] |= {"creationTimestamp": "2026-11-21T01:11:33Z", "uid": "u"}
    job["metadata"]["annotations"][f"{DISRUPTED}1-xxxxx"] = "2026-11-21T01:11:33Z evicted from node n"
    condition = {"type": "Failed", "status": "True", "reason": "FailedIndexes", "message": "m"}
    job["status"] = {
        "active": 1,
        "ready": 0,
        "completedIndexes": "0",
        "failedIndexes": "2",
        "startTime": "2026-11-21T01:11:33Z",
        "conditions": [{**condition, "lastTransitionTime": "2026-11-21T01:11:33Z"}],
        "state": {"phase": "Running"},
    }
    return job


def a_pod() -> dict[str, Any]:
    ended = {"exitCode": 3, "reason": "Error", "message": "{}", "finishedAt": "2026-11-21T01:11:33Z"}
    container = {
        "name": "main",
        "restartCount": 1,
        "state": {"terminated": ended},
        "lastState": {"terminated": ended},
    }
    return {
        "metadata": {
            "name": "a-trainer-2-xxxxx",
            "uid": "p",
            "labels": {ROLE_INDEX: "0", "torchx.pytorch.org/replica-id": "2"},
            "annotations": {
                "batch.kubernetes.io/job-index-failure-count": "0",
                "batch.kubernetes.io/job-index-ignored-failure-count": "1",
            },
            "deletionTimestamp": "2026-11-21T01:11:33Z",
            "ownerReferences": [{"kind": "Job", "name": "a", "uid": "u", "controller": True}],
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "main", "resources": {"limits": {"memory": "1Mi"}}}],
        },
        "status": {
            "phase": "Failed",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "x", "message": "m"}],
            "containerStatuses": [container],
            "initContainerStatuses": [container],
        },
    }


def a_lost_pod() -> dict[str, Any]:
    pod = a_pod()
    pod["metadata"]["name"] = "a-trainer-1-xxxxx"
    pod["metadata"]["labels"]["torchx.pytorch.org/replica-id"] = "1"
    del pod["metadata"]["deletionTimestamp"]
    runs = {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-11-21T01:11:33Z"}}}
    pod["status"] = {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-21T01:11:33Z"},
        ],
        "containerStatuses": [runs],
    }
    return pod


def paths_of(data: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [where, *(path for key, item in items for path in paths_of(item, (*where, key)))]


def changed(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of plain data with one value in it replaced."""
    if not path:
        return value
    copied = copy.copy(data)
    copied[path[0]] = changed(data[path[0]], path[1:], value)
    return copied


def without(data: Any, path: tuple[Any, ...]) -> Any:
    """A copy of plain data with one value in it removed."""
    copied = copy.copy(data)
    if len(path) == 1:
        del copied[path[0]]
    else:
        copied[path[0]] = without(data[path[0]], path[1:])
    return copied
