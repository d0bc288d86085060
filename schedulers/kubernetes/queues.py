"""Checks of Kueue queues: with a missing queue a job would wait forever without a message."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.errors import StateError, UsageError
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import label
from torchx.schedulers.kubernetes.manifests.job import QUEUE
from torchx.suggestions import did_you_mean

GROUP = "kueue.x-k8s.io"


def require_queue(cluster: Cluster, namespace: str, mains: Iterable[Object]) -> None:
    """Checks that the queue of a job exists, if the caller may list queues.

    Raises:
        StateError: Kueue is not installed.
        UsageError: the queue does not exist in the namespace.
        ClusterError: the cluster does not respond.
    """
    queue = next((name for main in mains if (name := label(main, QUEUE))), "")
    if not queue:
        return
    try:
        group = cluster.find(f"/apis/{GROUP}")
        if group is None:
            raise StateError(
                f"queue `{queue}` needs Kueue, which the cluster at {cluster.host} does not have: "
                "the job would wait forever",
                hint="omit the run option queue; installed components: torchx doctor",
            )
        names = _queues(cluster, group, namespace)
    except ClusterError as error:
        if error.status in (403, 404):
            return  # the caller may not list queues; Kueue may still admit the job
        raise
    if queue not in names:
        every = f"its queues: {', '.join(sorted(names))}" if names else "the namespace has no queues"
        raise UsageError(
            f"namespace `{namespace}` has no queue `{queue}`: the job would wait forever",
            hint=did_you_mean(queue, names, f"{every}   kubectl get localqueues -n {namespace}"),
        )


def _queues(cluster: Cluster, group: Object, namespace: str) -> list[str]:
    preferred = group.get("preferredVersion")
    version = preferred.get("groupVersion") if isinstance(preferred, dict) else None
    path = path_of(str(version or f"{GROUP}/v1beta1"), "localqueues", namespace)
    return [str(each["metadata"]["name"]) for each in cluster.items(path)]
