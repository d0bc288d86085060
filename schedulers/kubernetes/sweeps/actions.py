"""Runs of sweeps together: their status, end, removal and number at the same time, in few requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.objects import annotation, ended_indexes
from torchx.schedulers.kubernetes.cancel import cancel_objects, delete_objects, kill_objects
from torchx.schedulers.kubernetes.contexts import Clusters, forget
from torchx.schedulers.kubernetes.names import CANCELLED, split_run
from torchx.schedulers.kubernetes.objects import Facts, split_id
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.status import describe_runs
from torchx.schedulers.kubernetes.sweeps import ends, view
from torchx.schedulers.kubernetes.sweeps.facts import job_with_runs, pods_of, reachable
from torchx.schedulers.kubernetes.sweeps.manifests import parallelism
from torchx.schedulers.shared import owner
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import is_terminal

if TYPE_CHECKING:
    from torchx.scheduling.measurement import AppUsage


def glance_many(clusters: Clusters, app_ids: Collection[str]) -> Mapping[str, DescribeAppResponse]:
    """Returns the status of runs, without their roles; unknown ones are left out.

    Raises:
        UnavailableError: the cluster does not respond.
    """
    found: dict[str, DescribeAppResponse] = {}
    with reachable():
        for cluster, job, runs in _jobs(clusters, app_ids):
            whole = replace(job, pods=pods_of(cluster, job))
            for each in describe_runs(whole, runs, cluster.clock.now()):
                found[each.app_id] = cluster.clock.here(each)
    return found


def usage_many(app_ids: Collection[str]) -> Mapping[str, AppUsage]:
    """Returns no measurements: those of a cluster are of running pods only.

    Args:
        app_ids: ended runs.
    """
    return {}


def cancel_many(clusters: Clusters, app_ids: Collection[str], *, now: bool) -> None:
    """Ends runs; all of a Job together with their Job, which then starts no others.

    Args:
        clusters: the clusters.
        app_ids: the runs; ended ones are left unchanged.
        now: without a grace period.

    Raises:
        OwnershipError: a run belongs to another user.
        UnavailableError: the cluster does not respond.
    """
    with reachable():
        for cluster, job, runs in _own_jobs(clusters, app_ids, "cancelled"):
            if len(runs.union(*ended_indexes(job.mains[0]))) < view.count_of_runs(job.mains[0]):
                ends.cancel_runs(cluster, job, runs, grace=not now)
            elif now:
                kill_objects(cluster, job)
            else:
                cancel_objects(cluster, job)


def delete_many(clusters: Clusters, app_ids: Collection[str]) -> None:
    """Deletes runs: the Job with all its objects if no other run is left, else their pods.

    Raises:
        OwnershipError: a run belongs to another user.
        UnavailableError: the cluster does not respond.
    """
    with reachable():
        for cluster, job, runs in _own_jobs(clusters, app_ids, "deleted"):
            if ends.delete_runs(cluster, job, runs):
                delete_objects(cluster, job)
                forget(job.app_id)


def limit_many(clusters: Clusters, app_ids: Collection[str], at_once: int) -> None:
    """Changes the maximum number of runs at the same time in the Jobs of runs; 0 for no limit.

    Raises:
        OwnershipError: a run belongs to another user.
        UnavailableError: the cluster does not respond.
    """
    with reachable():
        for cluster, job, _ in _own_jobs(clusters, app_ids, "changed"):
            main = job.mains[0]
            if not is_terminal(job_facts("job", main).state) and not annotation(main, CANCELLED):
                change = {"spec": {"parallelism": parallelism(view.count_of_runs(job.mains[0]), at_once)}}
                cluster.patch(job.path_of(main), change)


def _own_jobs(
    clusters: Clusters, app_ids: Collection[str], verb: str
) -> Iterator[tuple[Cluster, Facts, set[int]]]:
    """Yields the Jobs as :func:`_jobs` does.

    Raises:
        OwnershipError: a Job belongs to another user, and cannot be cancelled, deleted or changed.
    """
    for cluster, job, runs in _jobs(clusters, app_ids):
        owner.require_own(job.app_id, job.owner, verb, None)
        yield cluster, job, runs


def _jobs(clusters: Clusters, app_ids: Collection[str]) -> Iterator[tuple[Cluster, Facts, set[int]]]:
    """Yields the Jobs of runs, and the indexes of these runs."""
    groups: dict[str, set[int]] = {}
    for app_id in app_ids:
        base, run = split_run(app_id)
        if run is not None:
            groups.setdefault(base, set()).add(run)
    for base, runs in groups.items():
        cluster = clusters.of(base)
        job = job_with_runs(cluster, *split_id(base, cluster.namespace))
        if job is not None:
            yield cluster, job, {run for run in runs if view.has_index(job.mains[0], run)}
