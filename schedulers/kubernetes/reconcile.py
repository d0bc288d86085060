"""Ends the replicas of an application that a failed one leaves behind."""

from __future__ import annotations

from torchx.schedulers.kubernetes.api.client import Cluster, Object
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import annotation, indexes, owned_pods, short
from torchx.schedulers.kubernetes.api.pod_ends import now
from torchx.schedulers.kubernetes.cancel import (
    cancel_objects,
    end_jobs,
    has_failed,
    has_running,
    is_to_be_ended,
    spec,
)
from torchx.schedulers.kubernetes.contexts import Clusters
from torchx.schedulers.kubernetes.gang import actions, restarts
from torchx.schedulers.kubernetes.gang.causes import never_retried
from torchx.schedulers.kubernetes.gang.restarts import due_restart, is_cancelled, is_gang
from torchx.schedulers.kubernetes.lookup import find
from torchx.schedulers.kubernetes.names import DISRUPTED
from torchx.schedulers.kubernetes.objects import (
    CANCELLED,
    STOPPED,
    Facts,
    gather,
    is_ended_by_us,
)
from torchx.schedulers.kubernetes.services.actions import coordinate
from torchx.schedulers.kubernetes.services.roles import has_order
from torchx.schedulers.kubernetes.state import taken
from torchx.schedulers.kubernetes.state.attempts import is_over
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.replicas import replica_of
from torchx.schedulers.kubernetes.status import describe
from torchx.schedulers.kubernetes.sweeps import ends
from torchx.schedulers.kubernetes.verdict import note_outcome
from torchx.schedulers.shared import owner
from torchx.specs.status import is_terminal

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
            ends.complete_cancel(cluster, facts)
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
        return actions.carry_out(cluster, facts, restart)
    actions.complete_marks(cluster, facts)
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
