"""Reads the events and the nodes that explain the state of pods."""

from __future__ import annotations

from collections.abc import Collection

from torchx.schedulers.kubernetes.api.client import Cluster, Listing, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import true_conditions, value_at
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.state.taken import node_of

MAX_LOOKUPS = 20
"""Maximum number of troubled applications or nodes that are queried one by one."""

Objects = list[Object]


def nodes_of(cluster: Cluster, pods: Objects) -> dict[str, Object]:
    """Returns the nodes of pods by name; empty without the right to read nodes."""
    nodes: dict[str, Object] = {}
    for name in sorted({node_of(pod) for pod in pods})[:MAX_LOOKUPS]:
        try:
            node = cluster.find(path_of("v1", "nodes", "", name))
        except ClusterError as error:
            if error.status != 403:
                raise
            return nodes
        if node is not None and shaped(node) is not None:
            nodes[name] = node
    return nodes


def waits(jobs: Objects, pods: Objects) -> bool:
    """Returns True if a pod is missing or pending, so that events may give a reason."""
    wanted = sum(int(value_at(job, "spec", "parallelism") or 0) for job in jobs if not has_ended(job))
    return len(pods) < wanted or any(value_at(pod, "status", "phase") == "Pending" for pod in pods)


def has_ended(job: Object) -> bool:
    """Returns True if a Job has ended or is suspended."""
    true = true_conditions(job)
    return bool(value_at(job, "spec", "suspend")) or "Complete" in true or "Failed" in true


def events_of(cluster: Cluster, namespace: str, name: str) -> Objects:
    """Returns warnings about the objects of an application; empty without the right to read events."""
    path = path_of("v1", "events", namespace)

    def query(names: Collection[str]) -> dict[str, Listing]:
        return dict.fromkeys(names, cluster.list_with_version(path, {"fieldSelector": "type=Warning"}))

    try:
        found = cluster.answers(path, query).about("")
    except ClusterError as error:
        if error.status in (403, 404):
            return []
        raise
    if found is None:
        return []
    return about(found.objects, name)


def about(events: Objects, name: str) -> Objects:
    """Returns the events about objects whose names begin with a text."""
    return [e for e in events if str((e.get("involvedObject") or {}).get("name", "")).startswith(name)]
