"""Carries out a restart of a gang: ends the replaced attempts, and creates the jobs of the next ones.

Every step can be repeated, by any process: the jobs of an attempt have fixed names, so a second process finds
them, and a process that continues after a killed one does the rest. The new jobs are suspended until their
creator has checked that nothing was cancelled or deleted meanwhile; a cancellation or a deletion lists the
jobs again afterwards, so it wins against a restart.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, if_allowed
from torchx.schedulers.kubernetes.api.objects import annotation, count_of, deleted, owns, parts_of, value_at
from torchx.schedulers.kubernetes.api.pod_ends import now
from torchx.schedulers.kubernetes.cancel import close, end_jobs, has_running
from torchx.schedulers.kubernetes.gang.attempts import attempt_of, name_of, originals
from torchx.schedulers.kubernetes.gang.next_job import next_job, rank0_service
from torchx.schedulers.kubernetes.gang.records import Restart, restart_from
from torchx.schedulers.kubernetes.gang.restarts import due_restart
from torchx.schedulers.kubernetes.gang.runs import run_of
from torchx.schedulers.kubernetes.manifests.job import MANY, QUEUE
from torchx.schedulers.kubernetes.names import RESTARTED
from torchx.schedulers.kubernetes.objects import (
    CANCELLED,
    HELD,
    Facts,
    gather,
    main_path,
    role_index,
    selector,
)
from torchx.schedulers.kubernetes.services.roles import awaits, before_of
from torchx.schedulers.kubernetes.state.attempts import FAILURE_COUNT, is_over
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.submit import path_to
from torchx.specs.status import is_terminal

MOST_CONFLICTS = 5
"""Maximum number of starts in a row for which a job has changed since it was read, as by its controller."""
LONGEST_DELAY = 60.0
"""Maximum seconds before a restart; clocks that differ by more cause none."""


def carry_out(cluster: Cluster, facts: Facts, restart: Restart) -> bool:
    """Continues a restart as far as possible.

    Returns:
        False if something remains to be done later: replicas have not ended yet, or a pause is due.
    """
    if not _end_replaced(cluster, facts, restart):
        return False
    current = gather(cluster, facts.namespace, facts.name, events=False)
    left = None
    if current is not None:
        left = due_restart(current)
    if current is None or left is None or not left.marked:
        return current is None or left is None
    if not _have_ended(cluster, current, _replaced(current, left)):
        return False
    pause = left.at - cluster.clock.now()
    if 0.0 < pause <= LONGEST_DELAY:
        return False
    created = [_created(cluster, manifest) for manifest in _manifests(current, left, now(cluster))]
    return any(_begin(cluster, current, left, created) for _ in range(MOST_CONFLICTS))


def _end_replaced(cluster: Cluster, facts: Facts, restart: Restart) -> bool:
    """Marks and ends the jobs that a restart replaces; returns False if this was done before, and pods run.

    The end of a pod is a change, so the next step needs no query until then.
    """
    replaced = _replaced(facts, restart)
    for main in replaced:
        if not annotation(main, RESTARTED):
            _mark(cluster, facts, main, restart)
    unended = [main for main in replaced if _is_unended(facts, main)]
    end_jobs(cluster, facts, unended, "")
    return bool(unended) or not any(_has_pods(facts, main) for main in replaced)


def complete_marks(cluster: Cluster, facts: Facts) -> None:
    """Marks restarts as done whose next attempts exist; a slow process may have marked them again."""
    for job in facts.earlier:
        found = restart_from(annotation(job, RESTARTED))
        if found is not None and not found[1]:
            cluster.patch(
                facts.path_of(job), {"metadata": {"annotations": {RESTARTED: found[0].text(done=True)}}}
            )


def _replaced(facts: Facts, restart: Restart) -> list[Object]:
    """Returns the jobs that a restart is still to replace, in the order of their roles."""
    mains = [main for main in facts.mains if restart.attempts.get(_role(main)) == attempt_of(main)]
    return sorted(mains, key=_role)


def _role(main: Object) -> int:
    number = role_index(main)
    if number is None:
        return -1
    return number


def _mark(cluster: Cluster, facts: Facts, main: Object, restart: Restart) -> None:
    """Records the restart in a job that it replaces; from now on the cluster deletes neither it nor pods."""
    change = {
        "metadata": {"annotations": {RESTARTED: restart.text()}},
        "spec": {"maxFailedIndexes": None, "backoffLimit": MANY, "ttlSecondsAfterFinished": None},
    }
    cluster.patch(facts.path_of(main), change)


def _is_unended(facts: Facts, main: Object) -> bool:
    """Returns True if the end of a job that is replaced was not requested, or not of all its pods."""
    is_open = not is_terminal(job_facts("job", main).state)
    return is_open and (not annotation(main, RESTARTED) or has_running(facts, main))


def _has_pods(facts: Facts, main: Object) -> bool:
    """Returns True if a pod of a job has not ended."""
    return any(owns(main, pod) and not is_over(pod) for pod in facts.pods)


def _have_ended(cluster: Cluster, facts: Facts, mains: list[Object]) -> bool:
    """Returns True if no pod of some jobs runs; closes jobs that would start another one."""
    for main in mains:
        if _has_pods(facts, main):
            return False
        if not is_terminal(job_facts("job", main).state) and not value_at(main, "spec", "suspend"):
            close(cluster, facts, main)
    return True


def _manifests(facts: Facts, restart: Restart, held_at: str) -> Iterator[Object]:
    """Yields the objects of the next attempts: services, then jobs."""
    replaced = _replaced(facts, restart)
    hosts = {}
    for main in replaced:
        name, attempt = main["metadata"]["name"], attempt_of(main)
        hosts[name] = name_of(name, attempt, attempt + 1)
    ttl = facts.cfg.get("ttl")
    more = {}
    if ttl is not None:
        more = {"ttlSecondsAfterFinished": ttl}
    run = run_of(restart.used)
    before = {number: ", ".join(before_of(role)) for number, role in enumerate(facts.roles)}
    made = [
        next_job(
            main,
            restart.text(),
            held_at,
            more,
            hosts,
            run,
            before.get(_role(main), ""),
            _failures(facts, main),
        )
        for main in replaced
    ]
    owners = [_owner(main) for main in replaced]
    yield from (rank0_service(job, owners) for job in made if _role(job) == 0)
    yield from made


def _failures(facts: Facts, main: Object) -> int:
    """Returns the maximum number of retries of a replica by its job."""
    counts = (count_of(annotation(pod, FAILURE_COUNT)) for pod in facts.pods if owns(main, pod))
    return max((count or 0 for count in counts), default=0)


def _created(cluster: Cluster, manifest: Object) -> Object:
    """Creates an object, unless another process has."""
    try:
        return cluster.create(path_to(manifest, name=False), manifest)
    except ClusterError as error:
        if error.reason != "AlreadyExists":
            raise
        return manifest


def _begin(cluster: Cluster, facts: Facts, restart: Restart, created: list[Object]) -> bool:
    """Starts the next attempts, unless the application was cancelled or deleted meanwhile.

    Returns:
        False if a job is missing, or has changed since the check: an end may have come first.
    """
    jobs = originals(cluster.items(main_path("job", facts.namespace), selector(facts.name)))
    before = [job for job in jobs if restart.attempts.get(_role(job)) == attempt_of(job)]
    following = [job for job in jobs if restart.attempts.get(_role(job), -1) == attempt_of(job) - 1]
    if len(before) < len(restart.attempts) or any(deleted(job) for job in before):
        for each in [*following, *created]:
            cluster.delete(path_to(each) if "kind" in each else facts.path_of(each))
        return True
    cancelled = next(filter(None, (annotation(job, CANCELLED) for job in jobs)), "")
    if cancelled:
        for job in following:
            if annotation(job, HELD):
                change = {"metadata": {"annotations": {CANCELLED: cancelled, HELD: None}}}
                cluster.patch(facts.path_of(job), change)
        return True
    if len(following) < len(restart.attempts):
        return False
    if not all(_is_done(job) for job in before):
        _take_over(cluster, facts, restart, before, jobs)
    return all(_start(cluster, facts, job) for job in following if annotation(job, HELD))


def _start(cluster: Cluster, facts: Facts, job: Object) -> bool:
    """Starts a job, unless it has changed since it was read."""
    queued = bool(value_at(job["metadata"], "labels", QUEUE))
    if queued or awaits(job):
        start = {}
    else:
        start = {"spec": {"suspend": False}}
    change = {**start, "metadata": {"annotations": {HELD: None}}}
    return cluster.patch_unchanged(facts.path_of(job), job, change)


def _is_done(job: Object) -> bool:
    """Returns True if the restart that replaces a job is marked as done."""
    found = restart_from(annotation(job, RESTARTED))
    return found is not None and found[1]


def _take_over(
    cluster: Cluster, facts: Facts, restart: Restart, before: list[Object], jobs: list[Object]
) -> None:
    """Makes the newest jobs the owners of all other objects, which are deleted with the last of them."""
    newest = [job for job in jobs if not any(_is_newer(other, job) for other in jobs)]
    owners = [_owner(job) for job in newest]
    for resource in ("services", "configmaps", "secrets"):
        path = path_of("v1", resource, facts.namespace)
        with if_allowed():
            for each in parts_of(jobs, cluster.items(path, selector(facts.name))):
                change = {"metadata": {"ownerReferences": owners}}
                cluster.patch(f"{path}/{each['metadata']['name']}", change)
    for job in before:  # last, as a restart that is done is not repeated
        own = [_owner(each) for each in newest if _role(each) == _role(job)]
        done = {RESTARTED: restart.text(done=True)}
        cluster.patch(facts.path_of(job), {"metadata": {"annotations": done, "ownerReferences": own}})


def _is_newer(other: Object, job: Object) -> bool:
    return _role(other) == _role(job) and attempt_of(other) > attempt_of(job)


def _owner(job: Object) -> Object:
    metadata = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
