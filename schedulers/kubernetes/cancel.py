"""Cancels, kills and deletes applications on a cluster.

A pod is ended by a deadline: its node sends TERM, waits for the grace period and sends KILL, and the pod
keeps its log. Deleting a pod, as a suspended Job does, deletes its log too; this is used only for pods
without a node, and for kinds of objects that would restart an ended pod.

A Job starts all its indexes. So the indexes of cancelled runs of a sweep are also in a Secret that each pod
mounts: the pod of a cancelled run ends immediately, with an exit code that the Job does not retry.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone

from torchx.json_limits import Data
from torchx.printable import ranges
from torchx.schedulers.kubernetes.api.client import Cluster, Object, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError, if_allowed
from torchx.schedulers.kubernetes.api.objects import (
    annotation,
    count_of,
    deleted,
    ended_indexes,
    indexes,
    label,
    owns,
    parts_of,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.api.shape import shaped
from torchx.schedulers.kubernetes.contexts import Clusters, forget
from torchx.schedulers.kubernetes.facts import VOLCANO, Facts, is_ended_by_us, owner_of, selector
from torchx.schedulers.kubernetes.manifests.job import MANY, QUEUE
from torchx.schedulers.kubernetes.names import (
    CANCELLED,
    CANCELLED_RUNS,
    CANCELLED_RUNS_AT,
    CLOSED,
    DEADLINE,
    DELETED_RUNS,
    ENDED,
    split_run,
)
from torchx.schedulers.kubernetes.objects import find_own, gather, job_with_runs, pods_of
from torchx.schedulers.kubernetes.state import run_view as view
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.kubernetes.state.attempts import (
    FAILURE_COUNT,
    ended_by_us,
    ended_container,
    is_over,
    live,
    needs_end,
)
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.restarts import due_restart, is_cancelled, is_gang
from torchx.schedulers.kubernetes.state.run_view import index_of
from torchx.schedulers.kubernetes.sweeps import launcher
from torchx.schedulers.kubernetes.sweeps.manifests import cancelled_secret
from torchx.specs.status import is_terminal

MAX_PARALLEL = 16
"""Maximum number of pods that are ended in parallel."""


def end_pod(cluster: Cluster, namespace: str, pod: Object) -> None:
    """Ends a pod by a deadline, which keeps pod and log; deletes a pod without a node."""
    path = path_of("v1", "pods", namespace, pod["metadata"]["name"])
    if not value_at(pod, "spec", "nodeName"):
        cluster.delete(path)
        return
    change = {"metadata": {"annotations": {ENDED: now(cluster)}}, "spec": {"activeDeadlineSeconds": 1}}
    try:
        cluster.patch(path, change)
    except ClusterError as error:
        if error.status == 404:
            return  # already deleted
        if error.status != 422:
            raise
        cluster.patch(path, {"metadata": change["metadata"]})  # the deadline is already one second


def now(cluster: Cluster) -> str:
    """Returns the current time of a cluster for an annotation."""
    return datetime.fromtimestamp(cluster.clock.now(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


BACK_OFF = 8.0
"""Seconds for pods to end before a cluster restarts the first of them, after ten seconds."""
APPEARS_WITHIN = 5.0
"""Seconds to wait until a Job has created its pods."""
PAUSE = 0.2


def cancel(clusters: Clusters, app_id: str) -> Facts | None:
    """Ends an application, if it exists and has not ended; returns it as it was before."""
    facts = find_own(clusters, app_id, "cancelled")
    if facts is not None:
        cancel_objects(clusters.of(app_id), facts)
    return facts


def kill(clusters: Clusters, app_id: str) -> Facts | None:
    """Ends all pods of an application immediately; returns it as it was before."""
    facts = find_own(clusters, app_id, "killed")
    if facts is not None:
        kill_objects(clusters.of(app_id), facts)
    return facts


def delete(clusters: Clusters, app_id: str) -> None:
    """Deletes an application with all its objects; its pods get their grace period."""
    facts = find_own(clusters, app_id, "deleted")
    if facts is not None:
        delete_objects(clusters.of(app_id), facts)
    forget(app_id)


def cancel_objects(cluster: Cluster, facts: Facts) -> None:
    """Ends the running parts of an application; keeps its objects and logs, so that it can be described."""
    if facts.run is not None:
        cancel_run(cluster, facts)
        return
    if facts.has_runs:
        start_no_more(cluster, facts)
    for current in _with_restarts(cluster, facts):
        if is_gang(current) and (due_restart(current) is not None or is_cancelled(current)):
            for main in current.mains:  # the end of its jobs is not that of the application
                if not annotation(main, CANCELLED):
                    change = {"metadata": {"annotations": {CANCELLED: now(cluster)}}}
                    cluster.patch(current.path_of(main), change)
        end_jobs(cluster, current, [m for m in current.mains if not _is_closed(m)], CANCELLED)


def _is_closed(main: Object) -> bool:
    """Returns True if the end of an object is complete: an end is repeated as long as pods may start."""
    return bool(annotation(main, CANCELLED) and spec(main).get("suspend"))


def _marked(cluster: Cluster, main: Object, mark: str) -> Object:
    """Returns a patch with a mark, unless the object has it: the first time counts."""
    if mark and not annotation(main, mark):
        return {"metadata": {"annotations": {mark: now(cluster)}}}
    return {}


def _with_restarts(cluster: Cluster, facts: Facts) -> Iterator[Facts]:
    """Yields the objects of an application, and again if another process has restarted it meanwhile."""
    seen: set[str] = set()
    current: Facts | None = facts
    while current is not None:
        names = {str(main["metadata"]["name"]) for main in current.mains}
        if names <= seen:
            return
        yield current
        if not is_gang(current):
            return
        seen |= names
        current = gather(cluster, facts.namespace, facts.name, events=False)


def kill_objects(cluster: Cluster, facts: Facts) -> None:
    """Ends the running parts of an application immediately, without a grace period."""
    if facts.run is not None:
        cancel_run(cluster, facts, grace=False)
        return
    current = facts
    for current in _with_restarts(cluster, facts):
        open_restart = due_restart(current) is not None
        for main in current.mains:
            if open_restart or not is_terminal(job_facts(facts.kind, main).state):
                close(cluster, facts, main, CANCELLED)
    path, immediately = path_of("v1", "pods", facts.namespace), {"gracePeriodSeconds": 0}
    for job in (*current.jobs, *current.earlier):
        running = {**_pod_query(job), "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
        cluster.delete(path, {**running, **immediately})
    if facts.kind == "volcano":  # no label of its pods has its id
        for pod in current.pods:
            if not is_over(pod):
                cluster.delete(f"{path}/{pod['metadata']['name']}", immediately)


def delete_objects(cluster: Cluster, facts: Facts) -> None:
    """Deletes an application with its objects; a run of a sweep with its pods, the last one with its Job."""
    if facts.run is not None:
        job = job_with_runs(cluster, facts.namespace, split_run(facts.name)[0])
        if job is None or not delete_runs(cluster, job, [facts.run]):
            return
        facts = job
    jobs: list[Object] = []
    for current in _with_restarts(cluster, facts):
        jobs += (*current.earlier, *current.mains)
        for main in (*current.earlier, *current.mains):
            # deletes the pods first, so that none runs without the object
            path = facts.path_of(main)
            cluster.delete(path, {"propagationPolicy": "Foreground"})
    for resource in ("services", "configmaps", "secrets"):
        path = path_of("v1", resource, facts.namespace)
        with suppress(ClusterError):  # the jobs own them: the cluster deletes them too
            for each in parts_of(jobs, cluster.items(path, selector(facts.name))):
                cluster.delete(f"{path}/{each['metadata']['name']}")


def spec(main: Object) -> Data:
    """Returns the specification of an object."""
    return main.get("spec") or {}


def has_failed(facts: Facts, main: Object) -> bool:
    """Returns True if a job has failed, or one of its replicas has, with no attempt left.

    The state of a container is a second or two ahead of that of its Job, so the other pods can be ended and
    keep their logs before the Job deletes them.
    """
    if not {"Failed", "FailureTarget"}.isdisjoint(true_conditions(main)):
        return True
    limit = spec(main).get("backoffLimitPerIndex")
    if limit is None:
        return False
    for pod in facts.pods:
        ended = ended_container(pod)
        failed = ended.get("exitCode") or value_at(pod, "status", "phase") == "Failed"
        spared = deleted(pod) or ended_by_us(pod) or taken.disruption(pod)
        count = count_of(annotation(pod, FAILURE_COUNT))
        if failed and not spared and owns(main, pod) and count is not None and count >= limit:
            return True
    return False


def has_running(facts: Facts, main: Object) -> bool:
    """Returns True if a job has running pods whose end was not requested."""
    return any(owns(main, pod) and needs_end(pod) for pod in facts.pods)


def is_to_be_ended(facts: Facts, main: Object) -> bool:
    """Returns True if a job has to be ended after a failure; one that has failed ends itself without pods."""
    return not is_ended_by_us(main) and (has_running(facts, main) or not has_failed(facts, main))


def end_jobs(cluster: Cluster, facts: Facts, mains: list[Object], mark: str) -> None:
    """Ends submitted objects in parallel."""
    begun: list[tuple[Object, set[str]]] = []
    for main in mains:
        job = job_facts(facts.kind, main)
        if is_terminal(job.state) or (job.ending and facts.kind == "job"):
            continue  # it ends its pods itself
        if not _keeps_pods(facts, main):
            close(cluster, facts, main, mark)
            continue
        try:
            if mark:
                _mark(cluster, facts, main, mark)
            begun.append((main, _indexes(_end_pods(cluster, facts, main))))
        except ClusterError as error:
            if error.status != 403:
                raise
            close(cluster, facts, main, mark)  # needs fewer rights, but deletes the logs
    retried = [each for each in begun if facts.has_runs or spec(each[0]).get("backoffLimitPerIndex")]
    _close_when_ended(cluster, facts, retried)
    rest = [each for each in begun if each not in retried and not _all_there(cluster, facts, *each)]
    _close_when_ended(cluster, facts, rest)


def _keeps_pods(facts: Facts, main: Object) -> bool:
    """Returns True if an object does not react to the end of single pods."""
    fields = spec(main)
    rules = value_at(fields, "podFailurePolicy", "rules") or []
    return (
        facts.kind == "job"
        and not fields.get("suspend")
        and fields.get("backoffLimitPerIndex") is not None
        and not any(rule.get("action") == "FailJob" for rule in rules)
    )


def _mark(cluster: Cluster, facts: Facts, main: Object, mark: str) -> None:
    """Marks why a Job ends, and prevents it from deleting the pods of its other replicas."""
    change = {**_marked(cluster, main, mark), "spec": {"maxFailedIndexes": None, "backoffLimit": MANY}}
    cluster.patch(facts.path_of(main), change)


def _pod_query(job: Object) -> dict[str, str]:
    """Returns the query for the pods of a Job; others may have copies of the labels of its application."""
    return {"labelSelector": f"batch.kubernetes.io/controller-uid={job['metadata']['uid']}"}


def _end_pods(cluster: Cluster, facts: Facts, main: Object) -> list[Object]:
    """Ends the running pods of a Job with their grace period; returns all its pods."""
    pods = cluster.items(path_of("v1", "pods", facts.namespace), _pod_query(main))
    due = [pod for pod in pods if needs_end(pod)]
    if due:
        with ThreadPoolExecutor(min(MAX_PARALLEL, len(due))) as pool:
            list(pool.map(lambda pod: end_pod(cluster, facts.namespace, pod), due))
    return pods


def _indexes(pods: list[Object]) -> set[str]:
    return {index_of(pod) for pod in pods}


def _all_there(cluster: Cluster, facts: Facts, main: Object, seen: set[str]) -> bool:
    """Ends pods that a Job creates late; returns True once all its pods exist."""
    wanted = int(spec(main).get("completions") or 1)
    end = time.monotonic() + APPEARS_WITHIN
    while len(seen) < wanted:
        job = cluster.find(facts.path_of(main))
        if job is None or shaped(job) is None or is_terminal(job_facts("job", job).state):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE)
        seen = seen | _indexes(_end_pods(cluster, facts, main))
    return True


def _close_when_ended(cluster: Cluster, facts: Facts, begun: list[tuple[Object, set[str]]]) -> None:
    """Ends Jobs once their pods have ended, before any pod is restarted.

    Args:
        cluster: the cluster.
        facts: the application.
        begun: Jobs with the indexes of their pods; one with the runs of a sweep may start others meanwhile.
    """
    left = list(begun)
    end = time.monotonic() + BACK_OFF
    while left:
        for main, seen in list(left):
            late = time.monotonic() > end
            pods = _end_pods(cluster, facts, main)
            pods = [pod for pod in pods if not facts.has_runs or index_of(pod) in seen]
            # a pod without a final phase would be deleted, even if its container has ended
            if late or all(is_over(pod) for pod in pods):
                path = facts.path_of(main)
                if not (facts.has_runs or annotation(main, CANCELLED)) and has_failed(facts, main):
                    cluster.patch(path, {"spec": {"maxFailedIndexes": 0}})  # fails, and keeps its pods
                else:
                    close(cluster, facts, cluster.find(path) or main)  # it may have started meanwhile
                left.remove((main, seen))
        if left:
            time.sleep(PAUSE)


def close(cluster: Cluster, facts: Facts, main: Object, mark: str = "") -> None:
    """Ends an object: its pods that run get TERM, the grace period and KILL, and are deleted.

    A Job that has started fails by a deadline, as a suspended one keeps ended pods in the cluster. Before
    its start, a Job has no pods, and no deadline.
    """
    change = _marked(cluster, main, mark)
    path = facts.path_of(main)
    has_started = value_at(main, "status", "startTime") and not spec(main).get("suspend")
    if facts.kind == "job" and has_started:
        before = spec(main).get("activeDeadlineSeconds")
        if before not in (None, CLOSED):  # the next attempt has it, too
            change.setdefault("metadata", {}).setdefault("annotations", {})[DEADLINE] = str(before)
        cluster.patch(path, {**change, "spec": {"activeDeadlineSeconds": CLOSED}})
        return
    if facts.kind != "volcano":
        if label(main, QUEUE):
            _take_from_queue(cluster, facts.namespace, main["metadata"]["uid"])
        cluster.patch(path, {**change, "spec": {"suspend": True}})
        return
    metadata = main["metadata"]
    owner = owner_of(VOLCANO, "Job", main)
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {
            "generateName": f"{metadata['name']}-abort-",
            "namespace": facts.namespace,
            "ownerReferences": [owner],
        },
        "action": "AbortJob",
        "target": {**owner, "controller": True},
    }
    cluster.create(path_of("bus.volcano.sh/v1alpha1", "commands", facts.namespace), command)
    cluster.patch(path, change)


def _take_from_queue(cluster: Cluster, namespace: str, uid: str) -> None:
    """Deactivates the Kueue workload of a job, so that Kueue does not start it again."""
    with if_allowed():  # the job is suspended in any case
        kueue = cluster.find("/apis/kueue.x-k8s.io")
        if kueue is None:
            return
        path = path_of(kueue["preferredVersion"]["groupVersion"], "workloads", namespace)
        for workload in cluster.items(path):
            owners = workload["metadata"].get("ownerReferences") or []
            if any(owner.get("uid") == uid for owner in owners):
                cluster.patch(f"{path}/{workload['metadata']['name']}", {"spec": {"active": False}})


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
    _mark_runs(cluster, job, runs, DELETED_RUNS)
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
        _write_cancelled(cluster, job, known)  # first: without the right, nothing is changed
        current = _mark_runs(cluster, job, due, CANCELLED_RUNS)
        if current is None:
            listed = known
        else:
            listed = indexes(annotation(current.mains[0], CANCELLED_RUNS))
        if listed != known:
            _write_cancelled(cluster, job, listed)
        _end_pods_of_runs(cluster, job, {str(run) for run in due}, grace)


def start_no_more(cluster: Cluster, job: Facts) -> None:
    """Lets the runs fail that a Job starts from now on, until it is suspended."""
    with suppress(ClusterError):  # without the right, the suspension ends them
        _write_cancelled(cluster, job, ["all"])


def _mark_runs(cluster: Cluster, job: Facts, runs: Collection[int], key: str) -> Facts | None:
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


def _write_cancelled(cluster: Cluster, job: Facts, runs: Iterable[int | str]) -> None:
    text = " ".join(map(str, sorted(runs)))
    path = path_of("v1", "secrets", job.namespace, cancelled_secret(job.name))
    cluster.patch(path, {"data": {launcher.CANCELLED: launcher.encoded(text)}})


def _end_pods_of_runs(cluster: Cluster, job: Facts, runs: Collection[str], grace: bool) -> None:
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
