"""Finds applications on clusters by their ids."""

from __future__ import annotations

import functools
from collections.abc import Callable

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.objects import RESOURCES, Facts, split_id
from torchx.schedulers.kubernetes.sweeps.facts import gather_app, gather_app_jobs
from torchx.schedulers.shared import owner
from torchx.scheduling.checks import unknown_application


def find(clusters: Clusters, app_id: str, *, whole: bool = False) -> Facts | None:
    """Returns the objects of an application, or None if it is unknown.

    Args:
        clusters: the clusters.
        app_id: the application.
        whole: keep all fields of its pods.
    """
    return _find(clusters, app_id, functools.partial(gather_app, whole=whole))


def find_jobs(clusters: Clusters, app_id: str) -> Facts | None:
    """Returns the objects of an application without its pods, or None if it is unknown."""
    return _find(clusters, app_id, gather_app_jobs)


def _find(
    clusters: Clusters, app_id: str, gather: Callable[[Cluster, str, str], Facts | None]
) -> Facts | None:
    cluster = clusters.of(app_id)
    namespace, name = split_id(app_id, cluster.namespace)
    facts = gather(cluster, namespace, name)
    if facts is None and ":" not in app_id and namespace != "default":
        return gather(cluster, "default", name)  # the default of submissions, regardless of the context
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
