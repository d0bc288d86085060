"""Reads the objects of an application from a cluster: jobs, pods and, if something waits, events."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.client import Cluster, Listing, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import (
    annotation,
    count_of,
    deleted,
    label,
    owned_pods,
    short,
    value_at,
)
from torchx.schedulers.kubernetes.api.pods import SmallPods
from torchx.schedulers.kubernetes.api.shape import MALFORMED
from torchx.schedulers.kubernetes.gang.attempts import newest_attempts, originals
from torchx.schedulers.kubernetes.names import APP, APP_ID, PREFIX, ROLE_INDEX, RUNS, USER
from torchx.schedulers.kubernetes.names import CANCELLED as CANCELLED
from torchx.schedulers.kubernetes.record import RecordError, read_record
from torchx.schedulers.kubernetes.state.evidence import (
    MAX_LOOKUPS,
    about,
    events_of,
    has_ended,
    nodes_of,
    waits,
)
from torchx.schedulers.kubernetes.state.taken import not_ready
from torchx.schedulers.kubernetes.sweeps import view
from torchx.scheduling.pace import is_sharing

BATCH, JOBSET, VOLCANO = "batch/v1", "jobset.x-k8s.io/v1alpha2", "batch.volcano.sh/v1alpha1"
RESOURCES = {"job": (BATCH, "jobs"), "jobset": (JOBSET, "jobsets"), "volcano": (VOLCANO, "jobs")}
"""API version and resource of the main objects, by kind."""

STOPPED = f"{PREFIX}stopped"
"""Annotation: time when it was stopped because another role failed."""
RELEASED = f"{PREFIX}released"
"""Annotation: time when a service was ended because all ordinary roles had succeeded."""
HELD = f"{PREFIX}held"
"""Annotation: the submission is incomplete; the job is suspended until all objects exist."""

CLOSED = 1
"""Seconds of the deadline by which torchx ends a Job that has started."""

_ID = r"(?a)[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
"""Any label value: ids of this project are narrower, but others can be deleted too."""
_NAMESPACE = r"(?a)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

Objects = list[Object]


@dataclass(frozen=True, eq=False)
class Facts:
    """The objects of one application.

    Attributes:
        namespace: the namespace.
        name: the id without the namespace.
        kind: job, jobset or volcano.
        mains: the submitted objects: a job for each role, or a single object of another kind.
        jobs: all jobs, including those created by other objects.
        pods: its pods.
        events: warnings about its objects, if requested.
        nodes: the nodes of running pods that are not ready, by name, if readable.
        partial: ``pods`` has only waiting and failed ones.
        earlier: the jobs of earlier attempts of a gang, whose newest ones are in ``mains``.
        run: the index of a run of a sweep in its Job, which is shown as an application with one replica.
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
    earlier: Objects = field(default_factory=list)
    run: int | None = None

    @property
    def app_id(self) -> str:
        """The id used in handles."""
        return f"{self.namespace}:{self.name}"

    def path_of(self, main: Object) -> str:
        """Returns the path of one of its submitted objects."""
        return main_path(self.kind, self.namespace, main["metadata"]["name"])

    @property
    def owner(self) -> str:
        """The name of the submitter, or an empty string if its objects do not have it."""
        return next((short(user) for main in self.mains if (user := annotation(main, USER))), "")

    @property
    def fails_fast(self) -> bool:
        """Whether all replicas are ended when one fails without retries left."""
        return not self.has_runs and bool(self.cfg.get("fail_fast", True))

    @property
    def has_runs(self) -> bool:
        """Whether its Job has the runs of a sweep, which are independent of each other."""
        return any(annotation(main, RUNS) for main in self.mains)

    @property
    def record(self) -> Object:
        """The record made at submission; empty if unreadable."""
        return self._read[0]

    @property
    def cfg(self) -> Data:
        """The recorded run options."""
        return self.record.get("cfg") or {}

    @property
    def roles(self) -> list[Data]:
        """The recorded roles."""
        return value_at(self.record, "app", "roles") or []

    @property
    def damage(self) -> str:
        """The reason why its objects or its record are unreliable, or an empty string."""
        return self.malformed or self._read[1]

    @functools.cached_property
    def malformed(self) -> str:
        """A message about the first submitted object with fields of a wrong type, or an empty string."""
        for main in self.mains:
            name = f"its {self.kind} {main['metadata']['name']}"
            if main.get(MALFORMED):
                return f"{name} is malformed: {main[MALFORMED]}"
            if self.kind == "job" and role_index(main) is None:
                return f"{name} is malformed: its label {ROLE_INDEX} is not a role number"
        return ""

    @functools.cached_property
    def _read(self) -> tuple[Object, str]:
        text = next((text for main in self.mains if (text := annotation(main, APP))), "")
        if not text:
            return {}, ""
        try:
            return (
                read_record(text) if self.run is None else view.run_record(text, self.mains[0], self.run)
            ), ""
        except RecordError as error:
            return {}, error.message


def split_id(app_id: str, namespace: str) -> tuple[str, str]:
    """Splits an id into namespace and name; the namespace defaults to the given one.

    Raises:
        UsageError: the id is invalid; an empty label value would select all applications.

    >>> split_id("research:train-b1", "default"), split_id("train-b1", "default")
    (('research', 'train-b1'), ('default', 'train-b1'))
    """
    place, colon, name = app_id.rpartition(":")
    place = place if colon else namespace
    if not re.fullmatch(_ID, name) or not re.fullmatch(_NAMESPACE, place):
        if app_id.isprintable():
            shown = app_id
        else:
            shown = ascii(app_id)[1:-1]
        raise UsageError(
            f"`{shown}` is not a valid application id on Kubernetes",
            hint="the format is NAMESPACE:NAME, e.g. default:train-x7k2m9cd; all applications: torchx list",
        )
    return place, name


def is_ended_by_us(main: Object) -> bool:
    """Returns True if torchx has requested the end of a submitted object."""
    return any(annotation(main, mark) for mark in (CANCELLED, STOPPED, RELEASED))


def role_index(main: Object) -> int | None:
    """Returns the role number of a Job, or None if its label is not a number."""
    return count_of(label(main, ROLE_INDEX))


def main_path(kind: str, namespace: str, name: str = "") -> str:
    """Returns the path of a main object, or of its collection."""
    version, resource = RESOURCES[kind]
    return path_of(version, resource, namespace, name)


def selector(name: str) -> dict[str, str]:
    """Returns the query for the objects of an application, or of all applications without a name."""
    return {"labelSelector": f"{APP_ID}={name}" if name else APP_ID}


def gather(
    cluster: Cluster, namespace: str, name: str, *, events: bool = True, whole: bool = False
) -> Facts | None:
    """Reads the objects of an application; returns None if there are none.

    Args:
        cluster: the cluster.
        namespace: its namespace.
        name: its id within the namespace.
        events: also read events if something waits.
        whole: keep all fields of its pods, also those that are not read here.
    """
    found = gather_jobs(cluster, namespace, name)
    if found is None:
        return None
    path = path_of("v1", "pods", namespace)
    if whole:
        pods = cluster.items(path, selector(name))
    else:
        pods = of_app(cluster, path, name, small=True)
    pods = owned_pods([*found.mains, *found.jobs, *found.earlier], pods)
    lost = [pod for pod in pods if events and not_ready(pod)]
    warnings = []
    if events and (lost or waits(found.jobs, pods)):
        warnings = events_of(cluster, namespace, name)
    return replace(found, pods=pods, events=warnings, nodes=nodes_of(cluster, lost))


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
        mains[kind] = _if_allowed(functools.partial(of_app, cluster, main_path(kind, namespace), ""))
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
        objects = _if_allowed(functools.partial(of_app, cluster, main_path(kind, namespace), name))
        if objects:
            return kind, originals(objects)
    return "job", []


def _if_allowed(read: Callable[[], Objects]) -> Objects:
    """Returns the items of a list, or an empty list if it is missing or forbidden."""
    try:
        return _not_deleted(read())
    except ClusterError as error:
        if error.status in (403, 404):
            return []
        raise


def _not_deleted(objects: Objects) -> Objects:
    """Filters out objects in deletion, which only wait for the end of their pods."""
    return [each for each in objects if not deleted(each)]
