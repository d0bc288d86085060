"""The runs of a sweep together, as one Indexed Job: their submission, status, end and removal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.json_limits import MOST_REPLICAS
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import Object, annotation, ended_indexes
from torchx.schedulers.kubernetes.api.rights import missing_right
from torchx.schedulers.kubernetes.cancel import (
    cancel_objects,
    cancel_runs,
    delete_objects,
    delete_runs,
    kill_objects,
)
from torchx.schedulers.kubernetes.contexts import Clusters, forget, remember
from torchx.schedulers.kubernetes.facts import Facts, selector, split_id
from torchx.schedulers.kubernetes.manifests.job import restarts_by_torchx
from torchx.schedulers.kubernetes.names import CANCELLED, RUNS, split_run
from torchx.schedulers.kubernetes.objects import job_with_runs, pods_of, reachable
from torchx.schedulers.kubernetes.options import AUTO, JOB
from torchx.schedulers.kubernetes.request import KubernetesJob
from torchx.schedulers.kubernetes.state import run_view as view
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.status import describe_runs
from torchx.schedulers.kubernetes.submit import DEFAULT, namespace_hint, submit
from torchx.schedulers.kubernetes.sweeps import launcher, manifests
from torchx.schedulers.kubernetes.sweeps.manifests import parallelism
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.options import progress_of
from torchx.scheduling.base import DescribeAppResponse, ManyRuns, Scheduler
from torchx.scheduling.checks import require_application
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.checks import hosts_in
from torchx.specs.run_options import RunOptions
from torchx.specs.status import is_terminal

with lazy_imports:
    from torchx.schedulers.kubernetes import images

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
                cancel_runs(cluster, job, runs, grace=not now)
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
            if delete_runs(cluster, job, runs):
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


NEEDED = (("create", "", "secrets"), ("patch", "", "secrets"))
"""The rights that a Job with runs needs beside those of other Jobs: verb, API group, resource."""


def rejects_many(clusters: Clusters, runs: ManyRuns) -> str:
    """Returns why runs cannot be the indexes of one Job, as a clause; empty if they can.

    A cluster that does not respond is assumed to accept them: their submission reports it.
    """
    why = unsuitable(runs)
    if why:
        return why
    try:
        cluster = clusters.select(runs.cfg)
        missing = missing_right(cluster, str(runs.cfg.get("namespace") or DEFAULT), NEEDED)
    except StateError:
        return ""
    if missing:
        return f"you may not `{missing}`, which holds the arguments of the runs"
    return ""


def unsuitable(runs: ManyRuns) -> str:
    """Returns why runs cannot be one Job on any cluster, as a clause; empty if they can."""
    first, cfg = runs.first, runs.cfg
    role = first.roles[0]
    if runs.after or runs.behind:
        return "a Job cannot wait for other Jobs"
    if len(first.roles) > 1 or role.num_replicas > 1:
        return "an index of a Job is one replica, and a run has several"
    if cfg.get("kind") not in (None, "", AUTO, JOB) or cfg.get("queue"):
        return "only a Job without a queue starts its indexes one after the other"
    if any(map(cfg.get, ("preflight", "setup_once"))) or restarts_by_torchx(first, role, cfg):
        return "torchx checks, prepares or restarts each run"
    if any(hosts_in(app) for app in runs.apps.values()):
        return "the addresses of replicas differ in the runs"
    if not launcher.can_launch(role.entrypoint):
        return (
            f"the arguments of an index are read by a shell or Python, and the runs start `{role.entrypoint}`"
        )
    if len(runs.apps) > MOST_REPLICAS:
        return f"a Job has at most {MOST_REPLICAS:,} indexes"
    name = manifests.rejected_variable([app.roles[0] for app in runs.apps.values()])
    if name:
        return f"the variable {name} of a pod cannot differ in the runs"
    return ""


def submit_many(clusters: Clusters, scheduler: Scheduler[KubernetesJob], runs: ManyRuns) -> Mapping[int, str]:
    """Creates the Job of runs, and returns the id of each run by its number.

    Args:
        clusters: the clusters.
        scheduler: makes the request of the first run.
        runs: the runs.

    Raises:
        UsageError: the arguments of the runs are too large.
        UnavailableError: the cluster does not respond.
        StateError: the cluster rejects the Job.
    """
    info = scheduler.submit_dryrun(runs.first, runs.cfg)
    with reachable():
        return _submit_runs(clusters, info, runs)


def _submit_runs(clusters: Clusters, info: AppDryRunInfo[KubernetesJob], runs: ManyRuns) -> Mapping[int, str]:
    first, cfg = require_application(info), info.cfg
    apps = _same_images([first, *list(runs.apps.values())[1:]])
    cluster = clusters.select(cfg)
    name = manifests.unique_for(first, len(apps), runs.key)
    request = manifests.to_request(apps, name, runs.key, cfg, runs.at_once, info.request.workspaces)
    if not _exists(cluster, request, runs.key):
        if request.workspaces.builds:
            request = images.provide_images(request, progress_of(info))[0]
        _create_job(cluster, request, cfg)
    ids = {number: f"{request.namespace}:{name}.{index}" for index, number in enumerate(runs.apps)}
    remember(f"{request.namespace}:{name}", cfg)
    return ids


def _same_images(apps: Sequence[AppDef]) -> list[AppDef]:
    """Returns the applications with the image of the first one, which the dry-run has planned."""
    first = apps[0].roles[0]
    changes: Object = {"image": first.image, "workspace": first.workspace}
    return [apps[0], *(replace(app, roles=[replace(app.roles[0], **changes)]) for app in apps[1:])]


def _exists(cluster: Cluster, request: KubernetesJob, key: str) -> bool:
    """Returns True if the runs were submitted before; removes what an interrupted submission has left.

    Raises:
        StateError: another application has the name of the Job.
    """
    job = job_with_runs(cluster, request.namespace, request.app_id)
    if job is not None:
        if annotation(job.mains[0], RUNS) != key:
            raise StateError(f"the Job {request.app_id} in namespace {request.namespace} has other runs")
        return True
    names = {manifest["metadata"]["name"] for manifest in request.manifests}
    for resource in ("secrets", "configmaps"):
        path = path_of("v1", resource, request.namespace)
        try:
            left = cluster.items(path, selector(request.app_id))
        except ClusterError as error:
            if error.status == 403:
                continue  # the right to create is not that to list
            raise
        for name in {each["metadata"]["name"] for each in left} & names:
            cluster.delete(f"{path}/{name}")
    return False


def _create_job(cluster: Cluster, request: KubernetesJob, cfg: RunOptions) -> None:
    other = namespace_hint(cluster, request.namespace)
    try:
        submit(cluster, request, validate=bool(cfg.get("validate_spec", True)))
    except ClusterError as error:
        if other and error.status in (403, 404):
            error.hint = other
        raise
