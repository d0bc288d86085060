"""Ends runs that share a Job: those that run, and those that the Job has not started yet.

A Job starts all its indexes. So the indexes of cancelled runs are also in a Secret that each pod mounts: the
pod of a cancelled run ends immediately, with an exit code that the Job does not retry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from torchx.printable import ranges
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import annotation, deleted, ended_indexes, indexes
from torchx.schedulers.kubernetes.api.pod_ends import MAX_PARALLEL, end_pod, now
from torchx.schedulers.kubernetes.names import (
    CANCELLED,
    CANCELLED_RUNS,
    CANCELLED_RUNS_AT,
    DELETED_RUNS,
    split_run,
)
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.state.attempts import ended_by_us, live, needs_end
from torchx.schedulers.kubernetes.sweeps import launcher, view
from torchx.schedulers.kubernetes.sweeps.facts import job_with_runs, pods_of
from torchx.schedulers.kubernetes.sweeps.manifests import cancelled_secret

TRIES = 20
"""Maximum number of attempts to change an annotation that other processes change, too."""


def cancel_run(cluster: Cluster, facts: Facts, *, grace: bool = True) -> None:
    """Ends a run.

    Args:
        cluster: the cluster.
        facts: the run.
        grace: give its pods the grace period.
    """
    name, run = split_run(facts.name)
    job = job_with_runs(cluster, facts.namespace, name)
    if job is not None and run is not None:
        cancel_runs(cluster, job, [run], grace=grace)


def complete_cancel(cluster: Cluster, facts: Facts) -> None:
    """Ends the pods of a run whose cancellation was interrupted."""
    if annotation(facts.mains[0], CANCELLED):
        for pod in facts.pods:
            if needs_end(pod):
                end_pod(cluster, facts.namespace, pod)


def delete_runs(cluster: Cluster, job: Facts, runs: Collection[int]) -> bool:
    """Deletes runs: ends them, deletes their pods with their logs, and notes it in their Job.

    Args:
        cluster: the cluster.
        job: the Job.
        runs: the indexes of the runs.

    Returns:
        True if no run of the Job is left.
    """
    main = job.mains[0]
    left = [run for run in range(view.count_of_runs(main)) if view.has_index(main, run) and run not in runs]
    if not left:
        return True
    cancel_runs(cluster, job, runs)
    _mark(cluster, job, runs, DELETED_RUNS)
    path = path_of("v1", "pods", job.namespace)
    for pod in pods_of(cluster, job):
        if view.index_of(pod) in {str(run) for run in runs}:
            cluster.delete(f"{path}/{pod['metadata']['name']}")
    return False


def cancel_runs(cluster: Cluster, job: Facts, runs: Collection[int], *, grace: bool = True) -> None:
    """Ends several runs of a Job; ended ones are left unchanged.

    Args:
        cluster: the cluster.
        job: the Job.
        runs: the indexes of the runs.
        grace: give their pods the grace period.

    Raises:
        ClusterError: the cluster rejects it.
    """
    due = set(runs).difference(*ended_indexes(job.mains[0]))
    if due:
        known = indexes(annotation(job.mains[0], CANCELLED_RUNS)) | due
        _write(cluster, job, known)  # first: without the right, nothing is changed
        current = _mark(cluster, job, due, CANCELLED_RUNS)
        if current is None:
            listed = known
        else:
            listed = indexes(annotation(current.mains[0], CANCELLED_RUNS))
        if listed != known:
            _write(cluster, job, listed)
        _end_pods(cluster, job, {str(run) for run in due}, grace)


def start_no_more(cluster: Cluster, job: Facts) -> None:
    """Lets the runs fail that a Job starts from now on, until it is suspended."""
    with suppress(ClusterError):  # without the right, the suspension ends them
        _write(cluster, job, ["all"])


def _mark(cluster: Cluster, job: Facts, runs: Collection[int], key: str) -> Facts | None:
    """Adds runs to an annotation of their Job; returns the Job, or None if it was deleted."""
    path = job.path_of(job.mains[0])
    current: Facts | None = job
    for left in reversed(range(TRIES)):
        if current is None:
            break
        main = current.mains[0]
        known = indexes(annotation(main, key))
        if known >= set(runs):
            break
        metadata = {
            "annotations": {
                key: ranges(known | set(runs)),
                **({CANCELLED_RUNS_AT: now(cluster)} if key == CANCELLED_RUNS else {}),
            },
            # rejects the change if another process was faster
            "resourceVersion": main["metadata"].get("resourceVersion"),
        }
        try:
            cluster.patch(path, {"metadata": metadata})
        except ClusterError as error:
            if error.status != 409 or not left:
                raise
        current = job_with_runs(cluster, job.namespace, job.name)
    return current


def _write(cluster: Cluster, job: Facts, runs: Iterable[int | str]) -> None:
    text = " ".join(map(str, sorted(runs)))
    path = path_of("v1", "secrets", job.namespace, cancelled_secret(job.name))
    cluster.patch(path, {"data": {launcher.CANCELLED: launcher.encoded(text)}})


def _end_pods(cluster: Cluster, job: Facts, runs: Collection[str], grace: bool) -> None:
    """Ends the live pods of runs in parallel."""
    pods = [pod for pod in pods_of(cluster, job) if view.index_of(pod) in runs and live(pod)]
    path = path_of("v1", "pods", job.namespace)

    def end(pod: Object) -> None:
        if not grace:
            cluster.delete(f"{path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        elif not deleted(pod) and not ended_by_us(pod):
            end_pod(cluster, job.namespace, pod)

    if pods:
        with ThreadPoolExecutor(min(MAX_PARALLEL, len(pods))) as pool:
            list(pool.map(end, pods))
