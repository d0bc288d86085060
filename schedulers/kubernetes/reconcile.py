"""Ends the replicas of an application that a failed one leaves behind, and notes its outcome."""

from __future__ import annotations

from contextlib import suppress

from torchx.printable import ranges
from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import annotation, indexes, owned_pods, short
from torchx.schedulers.kubernetes.cancel import (
    cancel_objects,
    complete_cancel,
    end_jobs,
    has_failed,
    has_running,
    is_to_be_ended,
    now,
    spec,
)
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.facts import Facts, is_ended_by_us
from torchx.schedulers.kubernetes.names import CANCELLED, DISRUPTED, OUTCOME, STOPPED
from torchx.schedulers.kubernetes.objects import find, gather
from torchx.schedulers.kubernetes.restart import carry_out, complete_marks
from torchx.schedulers.kubernetes.services import coordinate
from torchx.schedulers.kubernetes.state import restarts, taken
from torchx.schedulers.kubernetes.state.attempts import is_over, live
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.outcome import Outcome, outcome_of
from torchx.schedulers.kubernetes.state.replicas import replica_of
from torchx.schedulers.kubernetes.state.restarts import due_restart, is_cancelled, is_gang, never_retried
from torchx.schedulers.kubernetes.state.services import has_order
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.shared import owner
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.pace import alone
from torchx.specs.status import AppState, is_terminal

MOST_TRIES = 3
"""Maximum number of attempts to note an outcome while the object changes."""


def _is_settled(pod: Object) -> bool:
    """Returns False if a pod has ended and its node has not reported the reason yet."""
    return is_over(pod) or live(pod)


def _failed_replicas(found: DescribeAppResponse) -> dict[str, str]:
    """Returns the replicas that have failed, by role."""
    by_role = {
        role.role: ranges(replica.id for replica in role.replicas if replica.state is AppState.FAILED)
        for role in found.roles_statuses
    }
    return {role: numbers for role, numbers in by_role.items() if numbers}


def note_outcome(cluster: Cluster, facts: Facts, *, failed: bool = False) -> None:
    """Notes the end of an application and its first failure, unless they are noted.

    A run of a sweep has no object of its own. Without the right to change the objects, nothing is noted.

    Args:
        cluster: the cluster.
        facts: the application.
        failed: note the first failure before the end: no retry follows, and the others are about to be ended.
    """
    noted = outcome_of(facts.mains)
    is_noted = noted.state is not AppState.UNKNOWN or (failed and noted.failure is not None)
    if is_noted or facts.run is not None or owner.is_foreign(facts.owner):
        return
    with suppress(ClusterError), alone():
        for _ in range(MOST_TRIES):
            # read again: a copy of the pods may be older than that of the jobs
            current = gather(cluster, facts.namespace, facts.name, events=False)
            if current is None or current.damage or outcome_of(current.mains) != noted:
                return
            found = describe(current, cluster.clock.now(), failed=failed)
            outcome = Outcome(
                found.first_failure, found.state, found.msg, found.ended_at, _failed_replicas(found)
            )
            if not is_terminal(found.state):
                if not (found.first_failure and all(map(_is_settled, current.pods))):
                    return
                # before the end, others may still fail
                outcome = outcome._replace(state=AppState.UNKNOWN, failed={})
            main = min(current.mains, key=lambda each: str(each["metadata"]["name"]))
            path = facts.path_of(main)
            change = {"metadata": {"annotations": {OUTCOME: outcome.text()}}}
            if cluster.patch_unchanged(path, main, change):
                return


MAX_NOTES = 30
"""Maximum number of disrupted pods that are noted in a job."""


def reconcile(clusters: Clusters, app_id: str) -> None:
    """Ends the other replicas and roles after a failure, since jobs are independent of each other."""
    facts = find(clusters, app_id)
    if facts is not None:
        reconcile_objects(clusters.of(app_id), facts)
        note_outcome(clusters.of(app_id), facts)


def note_end(clusters: Clusters, facts: Facts | None) -> None:
    """Notes the result of an application that has ended: its pods may be removed later."""
    if facts is not None:
        cluster = clusters.of(facts.app_id)
        if is_terminal(describe(facts, cluster.clock.now()).state):
            note_outcome(cluster, facts)


def reconcile_objects(cluster: Cluster, facts: Facts) -> bool:
    """Reconciles an application: ends the other replicas if one has failed without attempts left.

    Jobs are independent of each other, and a failed Job deletes the pods of its other replicas with their
    logs. Also completes interrupted ends, and notes disruptions of pods in their job, since they cannot be
    found once a pod is deleted. Applications of other users and malformed ones remain unchanged.

    Returns:
        False if the cluster did not respond in time and a retry is due.
    """
    if facts.kind != "job" or facts.malformed or owner.is_foreign(facts.owner):
        return True
    try:
        if facts.run is not None:
            complete_cancel(cluster, facts)
            return True
        return _reconcile(cluster, facts)
    except ClusterError as error:  # ignored for a caller with read access only
        return not error.passes


def _reconcile(cluster: Cluster, facts: Facts) -> bool:
    """Takes the next steps of an application of this user, unless it is a run of a sweep."""
    _note_taken(cluster, facts)
    facts = _cancelled_again(cluster, facts)
    restart = due_restart(facts)
    if restart is not None:
        return carry_out(cluster, facts, restart)
    complete_marks(cluster, facts)
    unfinished = [main for main in facts.mains if is_ended_by_us(main) and _is_unfinished(facts, main)]
    end_jobs(cluster, facts, unfinished, "")
    if restarts.is_saving(facts):
        return True
    failed = _fails_fast(facts) and (restarts.has_failed(facts) or _has_failure(facts))
    if failed:
        note_outcome(cluster, facts, failed=True)
    if has_order(facts) and not facts.damage:
        return coordinate(cluster, facts)
    if failed:
        end_jobs(cluster, facts, [m for m in facts.mains if is_to_be_ended(facts, m)], STOPPED)
    return True


def _fails_fast(facts: Facts) -> bool:
    """Returns True if a failure ends an application: unknown if its record is damaged."""
    return facts.fails_fast and not (facts.damage or any(annotation(m, CANCELLED) for m in facts.mains))


def _has_failure(facts: Facts) -> bool:
    """Returns True if a replica has failed and is not retried."""
    return any(has_failed(facts, main) for main in facts.mains) or bool(never_retried(facts))


def _cancelled_again(cluster: Cluster, facts: Facts) -> Facts:
    """Completes a cancellation that was interrupted before it reached the newest attempts of a gang."""
    marked = [main for main in facts.mains if annotation(main, CANCELLED)]
    if not is_gang(facts) or not is_cancelled(facts) or len(marked) == len(facts.mains):
        return facts
    cancel_objects(cluster, facts)
    return gather(cluster, facts.namespace, facts.name) or facts


def _is_unfinished(facts: Facts, main: Object) -> bool:
    """Returns True if the end of a marked job was started and would not complete by itself."""
    rests = bool(spec(main).get("backoffLimitPerIndex")) and all(
        is_over(pod) for pod in owned_pods([main], facts.pods)
    )
    return not spec(main).get("suspend") and (has_running(facts, main) or rests)


def _note_taken(cluster: Cluster, facts: Facts) -> None:
    """Notes disrupted pods and the reasons in their jobs."""
    for main in facts.mains:
        new = _new_notes(cluster, facts, main)
        if new:
            cluster.patch(facts.path_of(main), {"metadata": {"annotations": new}})


def _new_notes(cluster: Cluster, facts: Facts, main: Object) -> dict[str, str]:
    """Returns the annotations about the disrupted pods of a job that it does not have."""
    job = job_facts(facts.kind, main)
    known = main["metadata"].get("annotations") or {}
    if is_terminal(job.state) or sum(key.startswith(DISRUPTED) for key in known) >= MAX_NOTES:
        return {}
    due = job.ending or spec(main).get("suspend") or is_ended_by_us(main)
    pods = owned_pods([main], facts.pods)
    if due:
        by_hand = set()
    else:
        by_hand = taken.deleted_by_hand(main, pods)
    completed = indexes(job.details.get("completedIndexes"))  # their pods may be deleted
    new = {}
    for pod in pods:
        deleted_by_hand = pod["metadata"]["name"] in by_hand and replica_of(pod)[1] not in completed
        why, key = taken.taken_away(pod, by_hand=deleted_by_hand), taken.note_key(pod)
        if why and key not in known:
            new[key] = f"{now(cluster)};{taken.cause_of(pod).value} {short(why)}"
    return new
