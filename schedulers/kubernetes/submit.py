"""Makes the objects of an application on a cluster: all of them, or none."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.manifests.names import APP_ID
from torchx.schedulers.kubernetes.objects import HELD, JOBSET
from torchx.schedulers.kubernetes.owner import USER, current_user
from torchx.schedulers.kubernetes.queues import require_queue
from torchx.schedulers.kubernetes.request import KubernetesJob

_PLURALS = {
    "Service": "services",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Job": "jobs",
    "JobSet": "jobsets",
}
_TRIES = 3
DEFAULT = "default"
"""The namespace that applications go to when none is chosen, whatever the context says."""
MASK = "********"
"""Stands for a value that is not shown."""
SECRET = 6
"""Characters of a value that is looked for in the text of an error, at least."""


def has_jobsets(cluster: Cluster) -> bool:
    """Tells whether a cluster knows JobSets."""
    return cluster.find(f"/apis/{JOBSET}") is not None


def submit(
    cluster: Cluster, request: KubernetesJob, *, validate: bool = True, tell: Callable[[str], None]
) -> list[str]:
    """Makes all objects of a request, in their order; undoes what was made when one is refused.

    Args:
        cluster: where.
        request: what.
        validate: have the cluster check all of it first, when nothing has been made yet.
        tell: called with a line about what takes long.

    Returns:
        Notes, a line each: what is not quite as it should be.

    Raises:
        ClusterError: the cluster refuses one of them, or does not answer.
        UsageError: the request was submitted before.
    """
    manifests = [copy.deepcopy(manifest) for manifest in request.manifests]
    mains = [m for m in manifests if is_main(m)]
    require_queue(cluster, request.namespace, mains)
    if user := current_user():
        for manifest in mains:
            manifest["metadata"].setdefault("annotations", {})[USER] = user
    if validate:
        for manifest in manifests:
            _create(cluster, manifest, {"dryRun": "All"})
    # several jobs begin together: an interrupted start must not leave a half that runs
    held = [m for m in mains if len(mains) > 1 and m["kind"] == "Job" and not m["spec"].get("suspend")]
    for manifest in held:
        manifest["spec"]["suspend"] = True
        manifest["metadata"].setdefault("annotations", {})[HELD] = datetime.now(timezone.utc).isoformat()
    tried: list[Object] = []
    try:
        made: list[Object] = []
        for manifest in manifests:
            tried.append(manifest)
            made.append(_create(cluster, manifest))
        notes = _set_owners(cluster, made)
        for manifest in held:
            change = {"spec": {"suspend": False}, "metadata": {"annotations": {HELD: None}}}
            cluster.patch(path_to(manifest), change)
    except BaseException as error:
        left = _undo(cluster, tried, error)
        if left and isinstance(error, ClusterError):
            where = f"-n {request.namespace} -l {APP_ID}={request.app_id}"
            error.hint = (
                f"not all of it could be removed again: kubectl delete jobs,services,configmaps {where}"
            )
        raise
    return notes


def namespace_hint(cluster: Cluster, namespace: str) -> str:
    """Returns what to know when the context has another namespace than the default one; empty otherwise.

    Args:
        cluster: as its kubeconfig describes it.
        namespace: where an application goes to.
    """
    if namespace != DEFAULT or cluster.namespace == DEFAULT:
        return ""
    return f"the namespace of {cluster.origin} is `{cluster.namespace}`: -cfg namespace={cluster.namespace}"


def is_main(manifest: Object) -> bool:
    """Tells whether a manifest is one of those that make pods."""
    return manifest["kind"] in ("Job", "JobSet")


def path_to(manifest: Object, *, name: bool = True) -> str:
    """Returns the path of the object that a manifest describes, or of its collection."""
    kind = manifest["kind"]
    resource = _PLURALS.get(kind, f"{kind.lower()}s")
    metadata = manifest["metadata"]
    return path_of(manifest["apiVersion"], resource, metadata["namespace"], metadata["name"] if name else "")


def _create(cluster: Cluster, manifest: Object, query: dict[str, str] | None = None) -> Object:
    """Makes an object, also when the answer to the first try got lost on the way."""
    try:
        return _create_with_retries(cluster, manifest, query)
    except ClusterError as error:
        # a server, or a webhook of it, may quote a part of what it refuses
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
                    f"{manifest['kind']} {manifest['metadata']['name']} is there already: was this request "
                    "submitted before?",
                    hint="a new dry-run gives it a new id",
                ) from None
            if not error.passes or error.hopeless:
                raise
            lost = error
    assert lost is not None
    raise lost


def _set_owners(cluster: Cluster, made: list[Object]) -> list[str]:
    """Ties what the jobs need to the jobs, so that the cluster removes it with the last of them."""
    owners = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in made
        if is_main(each)
    ]
    try:
        for each in made:
            if not is_main(each):
                cluster.patch(path_to(each), {"metadata": {"ownerReferences": owners}})
    except ClusterError as error:
        if error.status != 403:
            raise
        return [
            f"its services stay when its jobs are removed by other means than torchx delete: {error.message}"
        ]
    return []


def _undo(cluster: Cluster, tried: list[Object], error: BaseException) -> list[Object]:
    """Removes what was made, the last first; returns what could not be removed."""
    refused = isinstance(error, UsageError) or (isinstance(error, ClusterError) and not error.passes)
    if refused and isinstance(error, UsageError):
        tried = tried[:-1]  # somebody else's
    left = []
    for manifest in reversed(tried):
        try:
            cluster.delete(path_to(manifest))
        except ClusterError:
            left.append(manifest)
    return left


def without_values(text: str, manifest: Object) -> str:
    """Returns a text without the values of the environment and the arguments that a manifest holds.

    Numbers and short values stay: they occur by chance, and are no secrets.
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
    elif isinstance(data, str) and key in ("env", "args"):
        yield data
