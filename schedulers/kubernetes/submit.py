"""Creates the objects of an application on a cluster: all or none."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from typing import Any

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.masking import SecretValue
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import annotation, deleted, label, short
from torchx.schedulers.kubernetes.cancel import now
from torchx.schedulers.kubernetes.checks import ONLY_FAILED
from torchx.schedulers.kubernetes.contexts import Clusters, remember
from torchx.schedulers.kubernetes.facts import JOBSET, main_path, owner_of, selector
from torchx.schedulers.kubernetes.manifests.job import QUEUE
from torchx.schedulers.kubernetes.names import CANCELLED, HELD, USER
from torchx.schedulers.kubernetes.options import AUTO
from torchx.schedulers.kubernetes.request import KubernetesJob, kind_of, to_request
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.options import progress_of
from torchx.scheduling.checks import require_application
from torchx.scheduling.pace import pause_after
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.checks import has_services
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.schedulers.kubernetes import checks as service_checks
    from torchx.schedulers.kubernetes import images
    from torchx.schedulers.kubernetes.api import rights

_PLURALS = {
    "Service": "services",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Job": "jobs",
    "JobSet": "jobsets",
}
_TRIES = 3
START_WITHIN, FIRST_PAUSE = 60.0, 0.02
"""Seconds after which the start of Jobs that others keep changing is given up, and of the first pause."""
DEFAULT = "default"
"""The default namespace of applications, regardless of the context."""
MASK = "********"
"""Replacement for hidden values."""
SECRET = 6
"""Minimum length of values that are masked in error messages."""


def has_jobsets(cluster: Cluster) -> bool:
    """Returns True if a cluster has JobSets."""
    return cluster.find(f"/apis/{JOBSET}") is not None


def schedule(clusters: Clusters, info: AppDryRunInfo[KubernetesJob]) -> str:
    """Creates the objects of a request, and returns the id of the application.

    Raises:
        UsageError: the request is invalid, or was submitted before.
        StateError: the cluster does not respond, or rejects the request.
    """
    app, cfg = require_application(info), info.cfg
    cluster = clusters.select(cfg)
    request = _with_final_kind(cluster, info, app)
    request = info.request = _without_gang(cluster, info, app, request)
    if request.workspaces.builds:
        request, notes = images.provide_images(request, progress_of(info))
        info.notes += notes
    other = namespace_hint(cluster, request.namespace)
    try:
        info.notes += submit(cluster, request, validate=bool(cfg.get("validate_spec", True)))
    except ClusterError as error:
        if other and error.status in (403, 404):
            error.hint = other
        raise
    if other:
        info.notes.append(f"it runs in namespace `{request.namespace}`; {other}")
    app_id = f"{request.namespace}:{request.app_id}"
    remember(app_id, cfg)
    return app_id


def needs_watcher(info: AppDryRunInfo[KubernetesJob]) -> bool:
    """Returns True if torchx restarts an application as a whole, which no Job does."""
    return info.request.is_gang


def _with_final_kind(cluster: Cluster, info: AppDryRunInfo[KubernetesJob], app: AppDef) -> KubernetesJob:
    """Returns the request with kind=auto resolved to a kind that the cluster supports."""
    request, cfg = info.request, info.cfg
    kind = kind_of(app, cfg, has_jobset=True)
    if cfg.get("kind", AUTO) != AUTO or kind == request.kind or not has_jobsets(cluster):
        return request
    if to_request(app, request.app_id, cfg, request.kind, request.workspaces) != request:
        info.notes.append(
            "the request was changed after the dry-run and remains one Job per role, not a JobSet"
        )
        return request
    return to_request(app, request.app_id, cfg, kind, request.workspaces)


def _without_gang(
    cluster: Cluster, info: AppDryRunInfo[KubernetesJob], app: AppDef, request: KubernetesJob
) -> KubernetesJob:
    """Returns the request with retries that the cluster carries out, if the caller may not restart all."""
    missing = ""
    if request.is_gang:
        missing = rights.missing_right(cluster, request.namespace)
    if missing and has_services(app):
        service_checks.reject_without_right(missing, request.namespace)
    if not missing:
        return request
    info.notes.append(
        f"{ONLY_FAILED}: you may not `{missing}` in namespace {request.namespace}; "
        "kind=jobset restarts all of them if the cluster has JobSets"
    )
    if to_request(app, request.app_id, info.cfg, request.kind, request.workspaces) != request:
        return request  # changed after the dry-run
    return to_request(app, request.app_id, info.cfg, request.kind, request.workspaces, gangs=False)


def submit(cluster: Cluster, request: KubernetesJob, *, validate: bool = True) -> list[str]:
    """Creates all objects of a request in order; deletes them again if one is rejected.

    Args:
        cluster: the cluster.
        request: the request.
        validate: have the cluster validate all objects before the first is created.

    Returns:
        Warnings, one line each.

    Raises:
        ClusterError: the cluster rejects an object or does not respond.
        UsageError: the request was submitted before.
    """
    manifests = [copy.deepcopy(manifest) for manifest in request.manifests]
    mains = [m for m in manifests if is_main(m)]
    require_queue(cluster, request.namespace, mains)
    for manifest in mains:
        manifest["metadata"].setdefault("annotations", {})[USER] = owner.user_name()
    if validate:
        for manifest in manifests:
            _create(cluster, manifest, {"dryRun": "All"})
    held = []
    if len(mains) > 1:
        held = _hold(mains, now(cluster))
    tried: list[Object] = []
    try:
        made: list[Object] = []
        for manifest in manifests:
            tried.append(manifest)
            made.append(_create(cluster, manifest))
        notes = _set_owners(cluster, made)
        _start(cluster, request, held)
    except BaseException as error:
        left = _undo(cluster, tried, error)
        if left and isinstance(error, ClusterError):
            names = " ".join(f"{each['kind'].lower()}/{each['metadata']['name']}" for each in left)
            error.hint = f"some objects could not be deleted: kubectl delete -n {request.namespace} {names}"
        raise
    return notes


def _hold(mains: list[Object], at: str) -> list[Object]:
    """Suspends the jobs of several roles, which start together; returns them.

    An interrupted submission must not leave some of them running.

    Args:
        mains: the jobs.
        at: the time of the cluster.
    """
    held = [main for main in mains if main["kind"] == "Job" and not main["spec"].get("suspend")]
    for main in held:
        main["spec"]["suspend"] = True
        main["metadata"].setdefault("annotations", {})[HELD] = at
    return held


def _start(cluster: Cluster, request: KubernetesJob, held: list[Object]) -> None:
    """Starts jobs, unless another process ends the application meanwhile.

    Raises:
        ClusterError: their other changes, such as those of a controller, do not end.
    """
    change = {"spec": {"suspend": False}, "metadata": {"annotations": {HELD: None}}}
    left = {manifest["metadata"]["name"]: path_to(manifest) for manifest in held}
    begun = time.monotonic()
    while left:
        try:
            jobs = cluster.items(main_path("job", request.namespace), selector(request.app_id))
        except ClusterError as error:
            if error.status != 403:
                raise
            for path in left.values():  # without the right to list jobs, no change is seen
                cluster.patch(path, change)
            return
        if any(annotation(job, CANCELLED) or deleted(job) for job in jobs):
            return
        known = {job["metadata"]["name"]: job for job in jobs}
        left = {
            name: path
            for name, path in left.items()
            if name in known and not cluster.patch_unchanged(path, known[name], change)
        }
        if not left:
            return
        waited = time.monotonic() - begun
        if waited > START_WITHIN:
            raise ClusterError(
                f"cannot start {short(', '.join(left))}: other programs kept changing it for "
                f"{START_WITHIN:.0f} s",
                hint=f"show the changes: kubectl get jobs -n {request.namespace} -w -o yaml",
            )
        time.sleep(pause_after(waited, first=FIRST_PAUSE))


def namespace_hint(cluster: Cluster, namespace: str) -> str:
    """Returns a hint if the namespace of the context differs from the default one, else an empty string.

    Args:
        cluster: the cluster.
        namespace: the namespace of the application.
    """
    if namespace != DEFAULT or cluster.namespace == DEFAULT:
        return ""
    return f"the namespace of {cluster.origin} is `{cluster.namespace}`: -cfg namespace={cluster.namespace}"


def is_main(manifest: Object) -> bool:
    """Returns True if a manifest describes an object that creates pods."""
    return manifest["kind"] in ("Job", "JobSet")


def path_to(manifest: Object, *, name: bool = True) -> str:
    """Returns the path of a manifest's object, or of its collection."""
    kind = manifest["kind"]
    resource = _PLURALS.get(kind, f"{kind.lower()}s")
    metadata = manifest["metadata"]
    return path_of(manifest["apiVersion"], resource, metadata["namespace"], metadata["name"] if name else "")


def _create(cluster: Cluster, manifest: Object, query: dict[str, str] | None = None) -> Object:
    """Creates an object, also if the first response gets lost; masks values in errors."""
    try:
        return _create_with_retries(cluster, manifest, query)
    except ClusterError as error:
        # a server or a webhook may quote a part of the rejected object
        error.message = without_values(error.message, manifest)
        error.args = (error.message,)
        raise


def _create_with_retries(cluster: Cluster, manifest: Object, query: dict[str, str] | None) -> Object:
    path = path_to(manifest, name=False)
    lost: ClusterError | None = None
    for _ in range(_TRIES):
        try:
            return cluster.create(path, manifest, query)
        except ClusterError as error:
            if error.reason == "AlreadyExists":
                existing = cluster.find(path_to(manifest))
                if lost is not None and existing is not None:
                    return existing
                raise UsageError(
                    f"{manifest['kind']} {manifest['metadata']['name']} already exists; "
                    "a request can be submitted only once",
                    hint="a new dry-run assigns a new id",
                ) from None
            if not error.passes or error.hopeless:
                raise
            lost = error
    assert lost is not None
    raise lost


def _set_owners(cluster: Cluster, made: list[Object]) -> list[str]:
    """Makes the jobs owners of the other objects, so that the cluster deletes these with the last job."""
    owners = [owner_of(each["apiVersion"], each["kind"], each) for each in made if is_main(each)]
    try:
        for each in made:
            if not is_main(each):
                cluster.patch(path_to(each), {"metadata": {"ownerReferences": owners}})
    except ClusterError as error:
        if error.status != 403:
            raise
        return [f"services remain if anything but torchx delete removes the jobs: {error.message}"]
    return []


def _undo(cluster: Cluster, tried: list[Object], error: BaseException) -> list[Object]:
    """Deletes objects in reverse order; returns those that could not be deleted."""
    if isinstance(error, UsageError):
        tried = tried[:-1]  # existed before
    left = []
    for manifest in reversed(tried):
        try:
            cluster.delete(path_to(manifest))
        except ClusterError:
            left.append(manifest)
    return left


def without_values(text: str, manifest: Object) -> str:
    """Masks the values of a manifest's environment and arguments in a text.

    Numbers and short values are kept: they occur by chance and are not secrets.
    """
    long = {value for value in _values(manifest) if len(value) >= SECRET and not value.isdigit()}
    for value in sorted(long, key=len, reverse=True):
        text = text.replace(value, MASK)
    return text


def _values(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _values(value, key if key == "env" and name == "value" else name)
    elif isinstance(data, list):
        for value in data:
            yield from _values(value, key)
    elif isinstance(data, str) and (key in ("env", "args") or isinstance(data, SecretValue)):
        yield data


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
        every = "the namespace has no queues"
        if names:
            every = f"its queues: {', '.join(sorted(names))}"
        raise UsageError(
            f"namespace `{namespace}` has no queue `{queue}`: the job would wait forever",
            hint=did_you_mean(queue, names, f"{every}   kubectl get localqueues -n {namespace}"),
        )


def _queues(cluster: Cluster, group: Object, namespace: str) -> list[str]:
    preferred = group.get("preferredVersion")
    version = None
    if isinstance(preferred, dict):
        version = preferred.get("groupVersion")
    path = path_of(str(version or f"{GROUP}/v1beta1"), "localqueues", namespace)
    return [str(each["metadata"]["name"]) for each in cluster.items(path)]
