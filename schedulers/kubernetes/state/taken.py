"""Detects disruptions of pods: evictions, preemptions, lost nodes, deletions by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import itemgetter

from torchx.end_causes import cause_in
from torchx.printable import brief
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    conditions_of,
    count_of,
    deleted,
    short,
    text_at,
    time_of,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.names import DISRUPTED, ENDED, JOB_COMPLETION_INDEX
from torchx.specs.status import EndCause, Reason

IGNORED_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation of a pod: the number of earlier disruptions of its replica, which use up no retry."""
BY_HAND = "its pod was deleted by hand"
GONE = "its pod no longer exists"
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted on node {node} by a pod of higher priority",
    "EvictionByEvictionAPI": "evicted from node {node}",
    "DeletionByTaintManager": "evicted from node {node}: a taint of the node, such as that of a lost one",
    "DeletionByPodGC": "node {node} no longer exists",
    "TerminationByKubelet": "evicted from node {node}",
}


def node_of(pod: Object) -> str:
    """Returns the name of a pod's node, or an empty string."""
    return text_at(pod, "spec", "nodeName")


def disruption(pod: Object) -> str:
    """Returns why the cluster removed a pod from its node, as a phrase, or an empty string."""
    condition = true_conditions(pod).get("DisruptionTarget")
    if condition is None:
        return ""
    reason, node = str(condition.get("reason", "")), node_of(pod)
    phrase = _DISRUPTIONS.get(reason, f"taken from node {{node}}: {reason}").format(node=node)
    if not node:
        phrase = phrase.replace("from node ", "before it had a node").replace("on node ", "")
    detail = short(condition.get("message"))
    if detail and reason == "TerminationByKubelet":
        return f"{phrase}: {detail}"
    return phrase


def taken_away(pod: Object, *, by_hand: bool = False) -> str:
    """Returns why a pod was disrupted, as a phrase, or an empty string.

    Args:
        pod: the pod.
        by_hand: a deletion is by hand.
    """
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        return f"evicted from node {node_of(pod)}: {short(status.get('message'))}"
    return disruption(pod) or (BY_HAND if by_hand and deleted(pod) else "")


def cause_of(pod: Object) -> EndCause:
    """Returns the cause of the disruption of a pod."""
    condition = true_conditions(pod).get("DisruptionTarget")
    evicted = value_at(pod, "status", "reason") == "Evicted"
    if condition is not None and condition.get("reason") == "PreemptionByScheduler":
        return EndCause.PREEMPTED
    if evicted or condition is not None:
        return EndCause.NODE_LOST
    return EndCause.REMOVED


def spares_disrupted(job: Object) -> bool:
    """Returns True if a job ignores disruptions; jobs of version 0.1.0 count them as failures."""
    rules = value_at(job, "spec", "podFailurePolicy", "rules") or []
    return any(rule.get("action") == "Ignore" and rule.get("onPodConditions") for rule in rules)


def deleted_by_hand(job: Object, pods: Iterable[Object]) -> set[str]:
    """Returns the names of a job's pods that are being deleted by hand, as far as known.

    A job that ends all replicas at the first failure deletes pods itself before its status shows it; then
    only the first deletion can be by hand.

    Args:
        job: the job; neither it nor torchx is ending its pods.
        pods: its pods.
    """
    deleting, failed = {}, False
    for pod in pods:
        spared = disruption(pod) or annotation(pod, ENDED)
        if deleted(pod) and not spared:
            deleting[str(pod["metadata"].get("name"))] = str(pod["metadata"]["deletionTimestamp"])
        elif value_at(pod, "status", "phase") == "Failed" and not spared:
            failed = True
    if value_at(job, "spec", "maxFailedIndexes") != 0:
        return set(deleting)
    first = min(deleting.values(), default="")
    if failed:
        return set()
    return {name for name, at in deleting.items() if at == first}


def not_ready(pod: Object) -> bool:
    """Returns True if a pod's containers run but its condition is not ready: its node may be lost."""
    if value_at(pod, "status", "phase") != "Running" or not node_of(pod):
        return False
    ready = conditions_of(pod).get("Ready", {})
    containers = value_at(pod, "status", "containerStatuses") or []
    runs = bool(containers) and all(
        c.get("ready") and "running" in (c.get("state") or {}) for c in containers
    )
    # a pod at its deadline has a reason, PodFailed; one whose node is lost has none
    return runs and ready.get("status") == "False" and not ready.get("reason")


def lost_node(pod: Object, nodes: Mapping[str, Object], events: Iterable[Object], now: float) -> str:
    """Returns a phrase about a pod's node if the node is lost, else an empty string.

    Args:
        pod: the pod.
        nodes: readable nodes by name.
        events: warnings about the pod, used if its node is not readable.
        now: seconds since the epoch.
    """
    name = node_of(pod)
    if not not_ready(pod):
        return ""
    node = nodes.get(name)
    if node is not None:
        ready = conditions_of(node).get("Ready", {})
        if ready.get("status") == "True":
            return ""
        since = time_of(ready.get("lastTransitionTime"))
    else:
        if not any(event.get("reason") == "NodeNotReady" for event in events):
            return ""
        since = time_of(conditions_of(pod)["Ready"].get("lastTransitionTime"))
    return f"node {name} is not ready{age(since, now)}"


def age(since: datetime | None, now: float) -> str:
    """Returns the time since a change of a node, as the end of a phrase; empty if it is not known.

    >>> age(datetime.fromtimestamp(1000), 8300.0), age(None, 8300.0)
    (' for 2 h', '')
    """
    if since is None:
        return ""
    return f" for {brief(max(now - since.timestamp(), 0.0))}"


def note_key(pod: Object) -> str:
    """Returns the key of the job annotation that notes a pod's disruption."""
    index = annotation(pod, JOB_COMPLETION_INDEX) or "0"
    suffix = str(pod["metadata"].get("name", "")).rpartition("-")[2]
    return f"{DISRUPTED}{index}-{suffix}"[: len(DISRUPTED) + 40]


def noted(main: Object) -> dict[int, list[Reason]]:
    """Returns the noted disruptions of a job's pods by replica; notes of earlier versions have no cause."""
    notes = value_at(main, "metadata", "annotations") or {}
    result: dict[int, list[tuple[str, Reason]]] = {}
    for key, text in notes.items():
        index = str(key).removeprefix(DISRUPTED).partition("-")[0]
        number = None
        if str(key).startswith(DISRUPTED):
            number = count_of(index)
        if number is not None:
            begin, _, why = str(text).partition(" ")
            at, _, name = begin.partition(";")
            reason = Reason(short(why), EndCause.of(name) or cause_in(why))
            result.setdefault(number, []).append((at, reason))
    return {index: [why for _, why in sorted(each, key=itemgetter(0))] for index, each in result.items()}


def was_disrupted(notes: Iterable[Reason] | None, pod: Object | None) -> bool:
    """Returns True if a replica was disrupted, and has not failed by itself or by a deletion.

    Args:
        notes: the noted disruptions of its pods.
        pod: its newest pod, if it exists.
    """
    if pod is not None:
        if annotation(pod, ENDED):
            return False
        if disruption(pod) or count_before(pod):
            return True
        if value_at(pod, "status", "reason") == "Evicted":
            return False  # it has exceeded its own limit
    return any(note.cause is not EndCause.REMOVED for note in notes or ())


def count_before(pod: Object) -> int:
    """Returns the number of earlier disruptions of a pod's replica."""
    return count_of(annotation(pod, IGNORED_COUNT)) or 0
