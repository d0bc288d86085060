"""Queues of Kueue: a job would wait for a missing one for ever, and without a message."""

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
    """Refuses jobs for a queue that the cluster does not have, as far as the caller may look.

    Raises:
        StateError: the cluster has no Kueue.
        UsageError: the namespace has no such queue.
        ClusterError: the cluster does not answer.
    """
    queue = next((name for main in mains if (name := label(main, QUEUE))), "")
    if not queue:
        return
    try:
        group = cluster.find(f"/apis/{GROUP}")
        if group is None:
            raise StateError(
                f"queue `{queue}` is one of Kueue, which the cluster at {cluster.host} does not have: "
                "the job would wait for ever",
                hint="leave out the run option queue; the parts of the cluster: torchx doctor",
            )
        names = _queues(cluster, group, namespace)
    except ClusterError as error:
        if error.status in (403, 404):
            return  # the caller may not look: Kueue itself may admit the job all the same
        raise
    if queue not in names:
        every = f"its queues: {', '.join(sorted(names))}" if names else "it has no queues"
        raise UsageError(
            f"namespace `{namespace}` has no queue `{queue}`: the job would wait for ever",
            hint=did_you_mean(queue, names, f"{every}   kubectl get localqueues -n {namespace}"),
        )


def _queues(cluster: Cluster, group: Object, namespace: str) -> list[str]:
    preferred = group.get("preferredVersion")
    version = preferred.get("groupVersion") if isinstance(preferred, dict) else None
    path = path_of(str(version or f"{GROUP}/v1beta1"), "localqueues", namespace)
    return [str(each["metadata"]["name"]) for each in cluster.items(path)]
