"""Queries about applications: finds their objects, and derives the status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.contexts import Clusters, text_of
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.objects import find, gather_namespaces, pods_of
from torchx.schedulers.kubernetes.state import run_view as view
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.replicas import members_of
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.listing import newest_first, row_of
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.observation import Observation, Replica, Whole
from torchx.scheduling.pace import is_sharing
from torchx.specs.run_options import RunOptions
from torchx.specs.status import AppState, is_terminal

with lazy_imports:
    from torchx.schedulers.kubernetes import application
    from torchx.schedulers.kubernetes.sweeps import manifests
from torchx.schedulers.kubernetes.status import describe_runs, describe_safely


def describe_app(clusters: Clusters, app_id: str) -> DescribeAppResponse | None:
    """Returns the description of an application, or None if it is unknown."""
    facts = find(clusters, app_id)
    if facts is None:
        return None
    app = application.app_of(facts)
    if facts.run is not None:
        app = manifests.completed(clusters.of(app_id), facts, app)
    return replace(_described(clusters.of(app_id), facts), roles=app.roles, metadata=app.metadata)


def glance(clusters: Clusters, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application without its roles, or None if it is unknown."""
    facts = find(clusters, app_id)
    if facts is None:
        return None
    return _described(clusters.of(app_id), facts)


def _described(cluster: Cluster, facts: Facts) -> DescribeAppResponse:
    return cluster.clock.here(describe_safely(facts, cluster.clock.now()))


def outline(clusters: Clusters, app_id: str) -> DescribeAppResponse | None:
    """Returns the roles and replicas of an application without their status, or None if it is unknown.

    Its pods, of which there may be thousands, are not read.
    """
    facts = find(clusters, app_id, pods=False)
    if facts is None or facts.damage:
        return glance(clusters, app_id)
    unread = [Replica(member.role, member.replica, state=AppState.UNKNOWN) for member in members_of(facts)]
    return observation.describe(Observation(facts.app_id, "", None, {}, None, Whole(), unread))


def describe_native(clusters: Clusters, app_id: str) -> list[Object] | None:
    """Returns the cluster's objects of an application, or None if it is unknown."""
    facts = find(clusters, app_id, whole=True)
    if facts is None:
        return None
    return [*facts.mains, *facts.pods]


def list_apps(clusters: Clusters, cfg: RunOptions | None) -> list[ListAppResponse]:
    """Returns the applications of a namespace, newest first.

    Args:
        clusters: the clusters.
        cfg: run options context and namespace; default: the namespace ``default`` and that of the context.
    """
    cluster = clusters.select(cfg or {}, quick=not is_sharing())
    namespace = text_of(cfg, "namespace")
    if namespace:
        namespaces = [namespace]
    else:
        namespaces = list(dict.fromkeys(("default", cluster.namespace)))
    return newest_first(
        row_of(cluster.clock.here(each), is_own=owner.is_own(facts.owner))
        for facts in gather_namespaces(cluster, namespaces)
        for each in _listed(cluster, facts, cluster.clock.now())
    )


def _listed(cluster: Cluster, facts: Facts, now: float) -> Iterator[DescribeAppResponse]:
    """Yields the status of an application, or that of each run that shares its Job."""
    if not facts.has_runs:
        yield describe_safely(facts, now)
        return
    # the status of a Job does not name the indexes that run
    over = is_terminal(job_facts("job", facts.mains[0]).state)
    if over:
        whole = facts
    else:
        whole = replace(facts, pods=pods_of(cluster, facts), partial=False)
    yield from describe_runs(whole, range(view.count_of_runs(facts.mains[0])), now)
