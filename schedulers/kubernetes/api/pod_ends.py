"""Ends pods by a deadline, which keeps pod and log."""

from __future__ import annotations

from datetime import datetime, timezone

from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import value_at
from torchx.schedulers.kubernetes.names import ENDED

MAX_PARALLEL = 16
"""Maximum number of pods that are ended in parallel."""


def end_pod(cluster: Cluster, namespace: str, pod: Object) -> None:
    """Ends a pod by a deadline, which keeps pod and log; deletes a pod without a node."""
    path = path_of("v1", "pods", namespace, pod["metadata"]["name"])
    if not value_at(pod, "spec", "nodeName"):
        cluster.delete(path)
        return
    change = {"metadata": {"annotations": {ENDED: now(cluster)}}, "spec": {"activeDeadlineSeconds": 1}}
    try:
        cluster.patch(path, change)
    except ClusterError as error:
        if error.status == 404:
            return  # already deleted
        if error.status != 422:
            raise
        cluster.patch(path, {"metadata": change["metadata"]})  # the deadline is already one second


def now(cluster: Cluster) -> str:
    """Returns the current time of a cluster for an annotation."""
    return datetime.fromtimestamp(cluster.clock.now(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
