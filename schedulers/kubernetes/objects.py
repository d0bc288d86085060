"""What a cluster has of an application: its jobs, pods and, where somebody waits, events."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import annotation, count_of, label
from torchx.schedulers.kubernetes.api.shape import MALFORMED, shaped
from torchx.schedulers.kubernetes.manifests.names import APP, APP_ID, PREFIX, ROLE_INDEX
from torchx.schedulers.kubernetes.record import RecordError, read_record
from torchx.schedulers.kubernetes.state.taken import node_of, not_ready

BATCH, JOBSET, VOLCANO = "batch/v1", "jobset.x-k8s.io/v1alpha2", "batch.volcano.sh/v1alpha1"
RESOURCES = {"job": (BATCH, "jobs"), "jobset": (JOBSET, "jobsets"), "volcano": (VOLCANO, "jobs")}
"""Which objects of the API stand for an application, by kind."""

CANCELLED = f"{PREFIX}cancelled"
"""Annotation: when somebody cancelled it."""
STOPPED = f"{PREFIX}stopped"
"""Annotation: when it was stopped because another role failed."""
HELD = f"{PREFIX}held"
"""Annotation: its start is not complete; it is suspended until all of it is there."""

_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""The value of a label: those of this project are narrower, but what others wrote can be deleted too."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
MAX_LOOKUPS = 20
"""Applications of a listing, and nodes, that are looked at one by one because something is wrong there."""

Objects = list[Object]


@dataclass(frozen=True)
class Facts:
    """What a cluster has of one application.

    Attributes:
        namespace: where it is.
        name: its id without the namespace.
        kind: job, jobset or volcano.
        mains: the objects that were submitted: a job for each role, or the one object of another kind.
        jobs: all jobs, also those that another object has made.
        pods: its pods.
        events: what the cluster told of them, where it was asked.
        nodes: the nodes of pods that run and are not ready, by name, as far as they can be read.
        partial: of its pods only those that wait or failed are there.
    """

    namespace: str
    name: str
    kind: str
    mains: Objects
    jobs: Objects
    pods: Objects
    events: Objects = field(default_factory=list)
    nodes: dict[str, Object] = field(default_factory=dict)
    partial: bool = False

    @property
    def app_id(self) -> str:
        """The id as it stands in handles."""
        return f"{self.namespace}:{self.name}"

    @property
    def fails_fast(self) -> bool:
        """Whether all replicas are to end when one fails for good."""
        return bool((self.record.get("cfg") or {}).get("fail_fast", True))

    @property
    def record(self) -> dict[str, Any]:
        """What was written down at the submission; empty when it cannot be read."""
        return self._read[0]

    @property
    def damage(self) -> str:
        """Why its objects or its record cannot be relied on, in one sentence; empty when they can."""
        return self.malformed or self._read[1]

    @functools.cached_property
    def malformed(self) -> str:
        """Which of the submitted objects has fields of a wrong type; empty when none has."""
        for main in self.mains:
            name = f"its {self.kind} {main['metadata']['name']}"
            if main.get(MALFORMED):
                return f"{name} is malformed: {main[MALFORMED]}"
            if self.kind == "job" and role_index(main) is None:
                return f"{name} is malformed: its label {ROLE_INDEX} is not the number of a role"
        return ""

    @functools.cached_property
    def _read(self) -> tuple[dict[str, Any], str]:
        text = next((text for main in self.mains if (text := annotation(main, APP))), "")
        if not text:
            return {}, ""
        try:
            return read_record(text), ""
        except RecordError as error:
            return {}, error.message


def split_id(app_id: str, namespace: str) -> tuple[str, str]:
    """Returns the namespace and the name within it; an id without a namespace gets the given one.

    Raises:
        UsageError: no object has a label of this value: an empty one would choose all applications.

    >>> split_id("research:train-b1", "default"), split_id("train-b1", "default")
    (('research', 'train-b1'), ('default', 'train-b1'))
    """
    place, colon, name = app_id.rpartition(":")
    place = place if colon else namespace
    if not _ID.fullmatch(name) or not _NAMESPACE.fullmatch(place):
        shown = app_id if app_id.isprintable() else ascii(app_id)[1:-1]
        raise UsageError(
            f"`{shown}` cannot be the id of an application on Kubernetes",
            hint="an id reads NAMESPACE:NAME, e.g. default:train-x7k2m9cd; all applications: torchx list",
        )
    return place, name


def role_index(main: Object) -> int | None:
    """Returns the number of the role that a Job is for; None when its label is not a number."""
    return count_of(label(main, ROLE_INDEX))


def main_path(kind: str, namespace: str, name: str = "") -> str:
    """Returns the path of an object that stands for an application."""
    version, resource = RESOURCES[kind]
    return path_of(version, resource, namespace, name)


def selector(name: str) -> dict[str, str]:
    """Returns the query for the objects of an application; of all applications when no name is given."""
    return {"labelSelector": f"{APP_ID}={name}" if name else APP_ID}


def gather(cluster: Cluster, namespace: str, name: str, *, events: bool = True) -> Facts | None:
    """Asks the cluster for what it has of an application; None when it has nothing.

    Args:
        cluster: where it is.
        namespace: its namespace.
        name: its id within that.
        events: ask for events, too, where something waits.
    """
    query = selector(name)
    jobs = _not_deleted(cluster.items(path_of(BATCH, "jobs", namespace), query))
    owned = [job for job in jobs if _is_owned(job)]
    kind, mains = (
        ("job", jobs) if jobs and not owned else _find_by_kind(cluster, namespace, query, bool(owned))
    )
    if not mains:
        return None
    pods = cluster.items(path_of("v1", "pods", namespace), query)
    lost = [pod for pod in pods if events and not_ready(pod)]
    warnings = events_of(cluster, namespace, name) if events and (lost or waits(jobs, pods)) else []
    nodes = nodes_of(cluster, lost)
    return Facts(namespace, name, kind, mains, jobs if kind != "volcano" else [], pods, warnings, nodes)


def gather_all(cluster: Cluster, namespace: str) -> list[Facts]:
    """Asks the cluster for all applications of a namespace, in a few calls however many there are.

    Of their pods only those are asked for that say more than their jobs: those that wait or failed.
    """
    query = selector("")
    jobs = _not_deleted(cluster.items(path_of(BATCH, "jobs", namespace), query))
    mains = {"job": [job for job in jobs if not _is_owned(job)]}
    for kind in ("jobset", "volcano"):
        mains[kind] = _items_if_allowed(cluster, main_path(kind, namespace), query)
    unusual = {**query, "fieldSelector": "status.phase!=Running,status.phase!=Succeeded"}
    pods = _by_app(cluster.items(path_of("v1", "pods", namespace), unusual) if any(mains.values()) else [])
    children = _by_app(jobs)
    listed = []
    lookups = MAX_LOOKUPS
    for kind, all_of_kind in mains.items():
        for name, app_mains in _by_app(all_of_kind).items():
            if not _ID.fullmatch(name):
                continue  # an empty label is that of no application
            mine = children.get(name, [])
            if lookups and _may_be_disrupted(mine, pods.get(name, [])):
                lookups -= 1
                whole = gather(cluster, namespace, name)
                if whole is not None:
                    listed.append(whole)
                    continue
            listed.append(Facts(namespace, name, kind, app_mains, mine, pods.get(name, []), partial=True))
    return listed


def _may_be_disrupted(jobs: Objects, pods: Objects) -> bool:
    """Returns True if the status of a job hints at an eviction, a lost node or a deletion by hand."""
    pending = sum(pod.get("status", {}).get("phase") == "Pending" for pod in pods)
    for job in jobs:
        status = job.get("status") or {}
        if _has_ended(job):
            continue
        if status.get("terminating"):
            return True
        if "ready" in status and int(status.get("active") or 0) - int(status["ready"]) > pending:
            return True
    return False


def nodes_of(cluster: Cluster, pods: Objects) -> dict[str, Object]:
    """Returns the nodes of some pods by name; none where they may not be read."""
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


def gather_namespaces(cluster: Cluster, namespaces: Sequence[str]) -> list[Facts]:
    """Returns the applications of several namespaces; those that may not be read are left out.

    Raises:
        ClusterError: none of them may be read, or the cluster does not answer.
    """
    apps: list[Facts] = []
    refused: list[ClusterError] = []
    for namespace in namespaces:
        try:
            apps += gather_all(cluster, namespace)
        except ClusterError as error:
            if error.status != 403:
                raise
            refused.append(error)
    if len(refused) == len(namespaces):
        raise refused[-1]
    return apps


def _by_app(objects: Iterable[Object]) -> dict[str, Objects]:
    groups: dict[str, Objects] = {}
    for each in objects:
        groups.setdefault(label(each, APP_ID), []).append(each)
    return groups


def _is_owned(job: Object) -> bool:
    return any(owner.get("controller") for owner in job["metadata"].get("ownerReferences") or [])


def _find_by_kind(
    cluster: Cluster, namespace: str, query: dict[str, str], owned: bool
) -> tuple[str, Objects]:
    """Looks for an application among the kinds that not every cluster has."""
    for kind in ("jobset",) if owned else ("jobset", "volcano"):
        objects = _items_if_allowed(cluster, main_path(kind, namespace), query)
        if objects:
            return kind, objects
    return "job", []


def _items_if_allowed(cluster: Cluster, path: str, query: dict[str, str]) -> Objects:
    """Returns what is in a list that the cluster may not have, or not show."""
    try:
        return _not_deleted(cluster.items(path, query))
    except ClusterError as error:
        if error.status in (403, 404):
            return []
        raise


def _not_deleted(objects: Objects) -> Objects:
    """Leaves out what is being deleted: the cluster only waits for the end of its pods."""
    return [each for each in objects if not each["metadata"].get("deletionTimestamp")]


def waits(jobs: Objects, pods: Objects) -> bool:
    """Tells whether something does not run yet for a reason that the pods may not tell."""
    wanted = sum(int(job.get("spec", {}).get("parallelism") or 0) for job in jobs if not _has_ended(job))
    return len(pods) < wanted or any(pod.get("status", {}).get("phase") == "Pending" for pod in pods)


def _has_ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return bool(job.get("spec", {}).get("suspend")) or any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions
    )


def events_of(cluster: Cluster, namespace: str, name: str) -> Objects:
    """Returns the warnings about the objects of an application; none where they may not be read."""
    query = {"fieldSelector": "type=Warning"}
    try:
        events = cluster.items(path_of("v1", "events", namespace), query)
    except ClusterError as error:
        if error.status in (403, 404):
            return []
        raise
    return [e for e in events if str((e.get("involvedObject") or {}).get("name", "")).startswith(name)]
