"""Reads the objects of applications from a cluster: jobs, pods and, if something waits, events and nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torchx.schedulers.kubernetes.api.client import Cluster, Listing, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, if_allowed
from torchx.schedulers.kubernetes.api.objects import (
    created,
    deleted,
    label,
    owned_pods,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.api.pods import SmallPods
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import (
    _ID,
    BATCH,
    RESOURCES,
    Facts,
    main_path,
    newest_attempts,
    originals,
    selector,
    split_id,
)
from torchx.schedulers.kubernetes.names import (
    APP_ID,
    JOB_COMPLETION_INDEX,
    split_run,
)
from torchx.schedulers.kubernetes.names import CANCELLED as CANCELLED
from torchx.schedulers.kubernetes.state import run_view as view
from torchx.schedulers.kubernetes.state.run_view import run_facts
from torchx.schedulers.kubernetes.state.taken import node_of, not_ready
from torchx.schedulers.shared import owner
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.pace import is_sharing
from torchx.scheduling.protocols import UnavailableError


def gather(
    cluster: Cluster,
    namespace: str,
    name: str,
    *,
    pods: bool = True,
    events: bool = True,
    whole: bool = False,
) -> Facts | None:
    """Reads the objects of an application; returns None if there are none.

    Args:
        cluster: the cluster.
        namespace: its namespace.
        name: its id within the namespace; that of a run of a sweep is the id of its Job with its index.
        pods: also read its pods.
        events: also read events, if something waits.
        whole: keep all fields of its pods, also those that are not read here.
    """
    base, run = split_run(name)
    job = None
    if run is not None:
        job = job_with_runs(cluster, namespace, base)
    if job is not None and run is not None and view.has_index(job.mains[0], run):
        if pods:
            job = replace(job, pods=_pods_of_run(cluster, job, run, whole))
        facts: Facts | None = run_facts(job, run)
    else:
        facts = gather_jobs(cluster, namespace, name)
        if facts is not None and pods:
            facts = replace(facts, pods=_pods_of(cluster, facts, whole))
    if facts is None or not (pods and events):
        return facts
    lost = [pod for pod in facts.pods if not_ready(pod)]
    if lost or waits(facts.jobs, facts.pods):
        return replace(facts, events=_events_about(cluster, facts), nodes=nodes_of(cluster, lost))
    return facts


def _pods_of(cluster: Cluster, facts: Facts, whole: bool) -> Objects:
    """Returns the pods of an application."""
    path = path_of("v1", "pods", facts.namespace)
    if whole:
        pods = cluster.items(path, selector(facts.name))
    else:
        pods = of_app(cluster, path, facts.name, small=True)
    return owned_pods([*facts.mains, *facts.jobs, *facts.earlier], pods)


def _pods_of_run(cluster: Cluster, job: Facts, run: int, whole: bool) -> Objects:
    """Returns the pods of a run of a sweep, oldest first."""
    if is_sharing():
        return [pod for pod in pods_of(cluster, job) if view.index_of(pod) == str(run)]
    query = pod_selector(f"{job.name}.{run}", run)
    path = path_of("v1", "pods", job.namespace)
    return sorted(cluster.items(path, query, read=None if whole else SmallPods()), key=created)


def _events_about(cluster: Cluster, facts: Facts) -> Objects:
    """Returns the warnings about the objects of an application; of a run, about its Job and its pods."""
    if facts.run is None:
        return events_of(cluster, facts.namespace, facts.name)
    name = str(facts.mains[0]["metadata"]["name"])
    events = events_of(cluster, facts.namespace, name)
    whole = [event for event in events if event["involvedObject"]["name"] == name]
    return whole + about(events, f"{name}-{facts.run}-")


def of_app(cluster: Cluster, path: str, name: str, *, small: bool = False) -> Objects:
    """Returns the objects of an application in a list.

    Args:
        cluster: the cluster.
        path: the path of the list.
        name: the id of the application within the namespace; empty for all.
        small: they are pods; omit the fields that are not read here.
    """
    found = listing_of(cluster, path, name, small=small)
    if found is None:
        return []
    return found.objects


def listing_of(cluster: Cluster, path: str, name: str, *, small: bool = False) -> Listing | None:
    """Returns the objects of an application in a list with its version, or None; see :func:`of_app`."""

    def query(names: Collection[str]) -> dict[str, Listing]:
        only = next(iter(names)) if len(names) == 1 else ""
        read = cluster.list_with_version(path, selector(only), read=SmallPods() if small else None)
        apps = {app: Listing(objects, read.version) for app, objects in _by_app(read.objects).items()}
        return {**apps, only: read}

    return cluster.answers(path, query).about(name)


def gather_jobs(cluster: Cluster, namespace: str, name: str) -> Facts | None:
    """Reads the objects of an application without its pods; returns None if there are none."""
    jobs = _not_deleted(of_app(cluster, path_of(BATCH, "jobs", namespace), name))
    owned = [job for job in jobs if is_owned(job)]
    kind, mains, earlier = "job", *newest_attempts(jobs)
    if owned or not jobs:
        kind, mains = _find_by_kind(cluster, namespace, name, bool(owned))
        jobs = owned
    if not mains:
        return None
    jobs_of_kind = {"volcano": [], "jobset": jobs}.get(kind, mains)
    return Facts(namespace, name, kind, mains, jobs_of_kind, [], earlier=earlier)


def gather_all(cluster: Cluster, namespace: str) -> list[Facts]:
    """Reads all applications of a namespace in a fixed number of calls.

    Of their pods, only waiting and failed ones are read; the jobs describe the others.
    """
    jobs = _not_deleted(of_app(cluster, path_of(BATCH, "jobs", namespace), ""))
    mains = {"job": [job for job in jobs if not is_owned(job)]}
    for kind in ("jobset", "volcano"):
        mains[kind] = _optional(cluster, kind, namespace, "")
    path, read = path_of("v1", "pods", namespace), list[Object]()
    if is_sharing():
        read = of_app(cluster, path, "", small=True)
    elif any(mains.values()):
        unusual = {"fieldSelector": "status.phase!=Running,status.phase!=Succeeded"}
        read = cluster.items(path, {**selector(""), **unusual})
    pods = _by_app(read)
    children = _by_app(jobs)
    listed: list[Facts] = []
    doubtful: list[Facts] = []
    for kind, all_of_kind in mains.items():
        for name, app_mains in _by_app(all_of_kind).items():
            if not re.fullmatch(_ID, name):
                continue  # an empty label
            mine, mine_pods = children.get(name, []), pods.get(name, [])
            earlier: Objects = []
            if kind == "job":
                app_mains, earlier = newest_attempts(app_mains)
                mine = app_mains
            if not app_mains:
                continue
            mine_pods = owned_pods([*app_mains, *mine], mine_pods)
            found = Facts(namespace, name, kind, app_mains, mine, mine_pods, partial=True, earlier=earlier)
            unclear = len(doubtful) < MAX_LOOKUPS and _may_be_disrupted(mine, mine_pods)
            if unclear:
                doubtful.append(found)
            else:
                listed.append(found)
    return [*listed, *_with_pods(cluster, namespace, doubtful)]


def _with_pods(cluster: Cluster, namespace: str, apps: list[Facts]) -> Iterator[Facts]:
    """Yields applications with all their pods, in a fixed number of calls."""
    if not apps:
        return
    query = {"labelSelector": f"{APP_ID} in ({','.join(app.name for app in apps)})"}
    pods = _by_app(cluster.items(path_of("v1", "pods", namespace), query, read=SmallPods()))
    lost = [pod for each in pods.values() for pod in each if not_ready(pod)]
    nodes, events = nodes_of(cluster, lost), events_of(cluster, namespace, "")
    for app in apps:
        own = owned_pods([*app.mains, *app.jobs, *app.earlier], pods.get(app.name, []))
        yield replace(app, pods=own, events=about(events, app.name), nodes=nodes, partial=False)


def _may_be_disrupted(jobs: Objects, pods: Objects) -> bool:
    """Returns True if a job may have an eviction, a lost node or a pod deleted by hand."""
    pending = sum(value_at(pod, "status", "phase") == "Pending" for pod in pods)
    for job in jobs:
        status = job.get("status") or {}
        if has_ended(job):
            continue
        if status.get("terminating"):
            return True
        if "ready" in status and int(status.get("active") or 0) - int(status["ready"]) > pending:
            return True
    return False


def gather_namespaces(cluster: Cluster, namespaces: Sequence[str]) -> list[Facts]:
    """Returns the applications of several namespaces, skipping namespaces without the right to read.

    Raises:
        ClusterError: no namespace can be read, or the cluster does not respond.
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


def is_owned(job: Object) -> bool:
    """Returns True if another object, such as a JobSet, controls a job."""
    return any(owner.get("controller") for owner in job["metadata"].get("ownerReferences") or [])


def _find_by_kind(cluster: Cluster, namespace: str, name: str, owned: bool) -> tuple[str, Objects]:
    """Finds an application among the kinds that are optional in a cluster."""
    for kind in ("jobset",) if owned else ("jobset", "volcano"):
        objects = _optional(cluster, kind, namespace, name)
        if objects:
            return kind, originals(objects)
    return "job", []


def _optional(cluster: Cluster, kind: str, namespace: str, name: str) -> Objects:
    """Returns the submitted objects of a kind; none if the cluster lacks it, or the right to read it."""
    found: Objects = []
    with if_allowed():
        found = of_app(cluster, main_path(kind, namespace), name)
    return _not_deleted(found)


def _not_deleted(objects: Objects) -> Objects:
    """Filters out objects in deletion, which only wait for the end of their pods."""
    return [each for each in objects if not deleted(each)]


MAX_LOOKUPS = 20
"""Maximum number of troubled applications or nodes that are queried one by one."""

Objects = list[Object]


def nodes_of(cluster: Cluster, pods: Objects) -> dict[str, Object]:
    """Returns the nodes of pods by name; empty without the right to read nodes."""
    nodes: dict[str, Object] = {}
    with if_allowed():
        for name in sorted({node_of(pod) for pod in pods})[:MAX_LOOKUPS]:
            node = cluster.find(path_of("v1", "nodes", "", name))
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

    found = None
    with if_allowed():
        found = cluster.answers(path, query).about("")
    if found is None:
        return []
    return about(found.objects, name)


def about(events: Objects, name: str) -> Objects:
    """Returns the events about objects whose names begin with a text."""
    return [e for e in events if str((e.get("involvedObject") or {}).get("name", "")).startswith(name)]


def find(clusters: Clusters, app_id: str, *, pods: bool = True, whole: bool = False) -> Facts | None:
    """Returns the objects of an application, or None if it is unknown.

    Args:
        clusters: the clusters.
        app_id: the application.
        pods: also read its pods, and events if something waits.
        whole: keep all fields of its pods.
    """
    cluster = clusters.of(app_id)
    namespace, name = split_id(app_id, cluster.namespace)
    facts = gather(cluster, namespace, name, pods=pods, whole=whole)
    if facts is None and ":" not in app_id and namespace != "default":
        # the default of submissions, regardless of the context
        return gather(cluster, "default", name, pods=pods, whole=whole)
    return facts


def require(clusters: Clusters, app_id: str) -> Facts:
    """Returns the objects of an application.

    Raises:
        StateError: it is unknown.
    """
    facts = find(clusters, app_id)
    if facts is None:
        raise unknown_application("kubernetes", app_id)
    return facts


def find_own(clusters: Clusters, app_id: str, verb: str) -> Facts | None:
    """Returns the objects of an application of the current user, or None if it is unknown.

    Args:
        clusters: the clusters.
        app_id: the application.
        verb: the operation in the past, for the error message: "cancelled".

    Raises:
        OwnershipError: it belongs to another user.
    """
    facts = find(clusters, app_id)
    if facts is not None:
        version, resource = RESOURCES[facts.kind]
        names = " ".join(main["metadata"]["name"] for main in (*facts.earlier, *facts.mains))
        where = f"{resource}.{version.partition('/')[0]} -n {facts.namespace} {names}"
        owner.require_own(facts.app_id, facts.owner, verb, f"to do it anyway: kubectl delete {where}")
    return facts


@contextmanager
def reachable() -> Iterator[None]:
    """Raises UnavailableError for a cluster that does not respond, so that the caller repeats the call."""
    try:
        yield
    except ClusterError as error:
        if not error.passes:
            raise
        raise UnavailableError(error.message, hint=error.hint) from error


def job_with_runs(cluster: Cluster, namespace: str, name: str) -> Facts | None:
    """Returns a Job whose indexes are the runs of a sweep, without its pods, or None.

    Args:
        cluster: the cluster.
        namespace: its namespace.
        name: the id of the Job within the namespace.
    """
    jobs = of_app(cluster, main_path("job", namespace), name)
    jobs = originals(job for job in jobs if view.has_runs(job) and not deleted(job))
    if jobs:
        return Facts(namespace, name, "job", jobs, jobs, [])
    return None


def pod_selector(name: str, run: int | None) -> dict[str, str]:
    """Returns the query for the pods of an application.

    Args:
        name: its id within the namespace.
        run: its index in a Job with many runs; None for other applications.
    """
    if run is None:
        return selector(name)
    return {"labelSelector": f"{APP_ID}={split_run(name)[0]},{JOB_COMPLETION_INDEX}={run}"}


def main_selector(name: str, run: int | None) -> dict[str, str]:
    """Returns the query for the submitted objects of an application; see :func:`pod_selector`."""
    return selector(name if run is None else split_run(name)[0])


def pods_of(cluster: Cluster, job: Facts) -> list[Object]:
    """Returns the pods of all runs, oldest first."""
    pods = of_app(cluster, path_of("v1", "pods", job.namespace), job.name, small=True)
    return sorted(owned_pods(job.mains, pods), key=created)
