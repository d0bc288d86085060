"""Reads applications from a cluster, also the runs of sweeps, which share a Job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import created, deleted, owned_pods
from torchx.schedulers.kubernetes.api.pods import SmallPods
from torchx.schedulers.kubernetes.gang.attempts import originals
from torchx.schedulers.kubernetes.names import APP_ID, JOB_COMPLETION_INDEX, split_run
from torchx.schedulers.kubernetes.objects import (
    Facts,
    gather,
    gather_jobs,
    main_path,
    of_app,
    selector,
)
from torchx.schedulers.kubernetes.state.evidence import events_of, nodes_of, waits
from torchx.schedulers.kubernetes.state.taken import not_ready
from torchx.schedulers.kubernetes.sweeps import view
from torchx.scheduling.pace import is_sharing
from torchx.scheduling.protocols import UnavailableError


@contextmanager
def reachable() -> Iterator[None]:
    """Raises UnavailableError for a cluster that does not respond, so that the caller repeats the call."""
    try:
        yield
    except ClusterError as error:
        if not error.passes:
            raise
        raise UnavailableError(error.message, hint=error.hint) from error


def gather_app(
    cluster: Cluster, namespace: str, name: str, *, events: bool = True, whole: bool = False
) -> Facts | None:
    """Reads the objects of an application; returns None if there are none.

    Args:
        cluster: the cluster.
        namespace: its namespace.
        name: its id within the namespace; that of a run of a sweep is the id of its Job with its index.
        events: also read events if something waits.
        whole: keep all fields of its pods, also those that are not read here.
    """
    base, run = split_run(name)
    if run is not None:
        job = job_with_runs(cluster, namespace, base)
        if job is not None and view.has_index(job.mains[0], run):
            return _gather_run(cluster, job, run, events, whole)
    return gather(cluster, namespace, name, events=events, whole=whole)


def gather_app_jobs(cluster: Cluster, namespace: str, name: str) -> Facts | None:
    """Reads the objects of an application without its pods; see :func:`gather_app`."""
    base, run = split_run(name)
    if run is not None:
        job = job_with_runs(cluster, namespace, base)
        if job is not None and view.has_index(job.mains[0], run):
            return run_facts(job, run)
    return gather_jobs(cluster, namespace, name)


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


def _gather_run(cluster: Cluster, job: Facts, run: int, events: bool, whole: bool) -> Facts:
    """Returns a run of a sweep; reads only its pods."""
    path = path_of("v1", "pods", job.namespace)
    if is_sharing():
        pods = [pod for pod in pods_of(cluster, job) if view.index_of(pod) == str(run)]
    else:
        query = pod_selector(f"{job.name}.{run}", run)
        pods = sorted(cluster.items(path, query, read=None if whole else SmallPods()), key=created)
    found = run_facts(replace(job, pods=pods), run)
    lost = [pod for pod in found.pods if events and not_ready(pod)]
    if not (events and (lost or waits(found.mains, found.pods))):
        return found
    name = str(job.mains[0]["metadata"]["name"])
    warnings = [
        event
        for event in events_of(cluster, job.namespace, name)
        if event["involvedObject"]["name"] == name
        or event["involvedObject"]["name"].startswith(f"{name}-{run}-")
    ]
    return replace(found, events=warnings, nodes=nodes_of(cluster, lost))


def run_facts(job: Facts, run: int) -> Facts:
    """Returns a run of a sweep as an application with one replica.

    Args:
        job: the Job with all runs, and at least the pods of this one, oldest first.
        run: the index of the run.
    """
    main, pods = view.run_view(job.mains[0], run, owned_pods(job.mains, job.pods))
    return replace(job, name=f"{job.name}.{run}", mains=[main], jobs=[main], pods=pods, run=run)


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
