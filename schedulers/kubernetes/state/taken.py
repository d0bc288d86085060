"""Pods that were taken away: evicted, preempted, lost with their node, deleted by hand; the node is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from torchx.schedulers.kubernetes.api.objects import Object, annotation, count_of, deleted, short, time_of
from torchx.schedulers.kubernetes.manifests.names import DISRUPTED, ENDED

IGNORED_COUNT = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation of a pod: how often its replica was taken away before; such an end uses up no retry."""
BY_HAND = "its pod was deleted by hand"
GONE = "its pod is gone: it was deleted by hand, or evicted"
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted on node {node} by a pod of higher priority",
    "EvictionByEvictionAPI": "evicted from node {node}",
    "DeletionByTaintManager": "evicted from node {node}: a taint of the node, such as that of a lost one",
    "DeletionByPodGC": "node {node} is gone",
    "TerminationByKubelet": "evicted from node {node}",
}


def node_of(pod: Object) -> str:
    """Returns the name of the node that a pod is on; empty when it has none yet."""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def condition_of(thing: Object, kind: str) -> Mapping[str, Any]:
    """Returns a condition of an object; empty when it has none of that type."""
    conditions = (thing.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind), {})


def disruption(pod: Object) -> str:
    """Returns why the cluster took the pod from its node, as a phrase; empty when it did not."""
    condition = condition_of(pod, "DisruptionTarget")
    if condition.get("status") != "True":
        return ""
    reason, node = str(condition.get("reason", "")), node_of(pod)
    phrase = _DISRUPTIONS.get(reason, f"taken from node {{node}}: {reason}").format(node=node)
    if not node:
        phrase = phrase.replace("from node ", "before it had a node").replace("on node ", "")
    detail = short(condition.get("message"))
    return f"{phrase}: {detail}" if detail and reason == "TerminationByKubelet" else phrase


def taken_away(pod: Object, *, by_hand: bool = False) -> str:
    """Returns why a pod was taken away, as a phrase; empty when it was not.

    Args:
        pod: the pod.
        by_hand: if it is being deleted, then by a person.
    """
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        return f"evicted from node {node_of(pod)}: {short(status.get('message'))}"
    return disruption(pod) or (BY_HAND if by_hand and deleted(pod) else "")


def spares_disrupted(job: Object) -> bool:
    """Returns True if a job does not count what the cluster takes away; those of version 0.1.0 do."""
    rules = ((job.get("spec") or {}).get("podFailurePolicy") or {}).get("rules") or []
    return any(rule.get("action") == "Ignore" and rule.get("onPodConditions") for rule in rules)


def deleted_by_hand(job: Object, pods: Iterable[Object]) -> set[str]:
    """Returns the names of the pods of a job that a person is deleting, as far as that can be told.

    A job that ends all replicas at the first failure deletes pods itself, a moment before its status says so:
    there, only the pod that was deleted first can be one.

    Args:
        job: the job; neither it nor torchx has begun to end its pods.
        pods: its pods.
    """
    deleting, failed = {}, False
    for pod in pods:
        spared = disruption(pod) or annotation(pod, ENDED)
        if deleted(pod) and not spared:
            deleting[str(pod["metadata"].get("name"))] = str(pod["metadata"]["deletionTimestamp"])
        elif (pod.get("status") or {}).get("phase") == "Failed" and not spared:
            failed = True
    if (job.get("spec") or {}).get("maxFailedIndexes") != 0:
        return set(deleting)
    first = min(deleting.values(), default="")
    return set() if failed else {name for name, at in deleting.items() if at == first}


def not_ready(pod: Object) -> bool:
    """Returns True if a pod runs by its containers and not by its condition: perhaps its node is lost."""
    if (pod.get("status") or {}).get("phase") != "Running" or not node_of(pod):
        return False
    ready = condition_of(pod, "Ready")
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    runs = bool(containers) and all(
        c.get("ready") and "running" in (c.get("state") or {}) for c in containers
    )
    # a pod at its deadline has a reason, PodFailed; one whose node is lost has none
    return runs and ready.get("status") == "False" and not ready.get("reason")


def lost_node(pod: Object, nodes: Mapping[str, Object], events: Iterable[Object], now: float) -> str:
    """Returns a phrase about the node of a pod, if that is lost; else empty.

    Args:
        pod: the pod.
        nodes: nodes by name, as far as they could be read.
        events: warnings about the pod, for callers who may read no nodes.
        now: seconds since the epoch.
    """
    name = node_of(pod)
    if not not_ready(pod):
        return ""
    node = nodes.get(name)
    if node is not None:
        ready = condition_of(node, "Ready")
        if ready.get("status") == "True":
            return ""
        since = time_of(ready.get("lastTransitionTime"))
    else:
        if not any(event.get("reason") == "NodeNotReady" for event in events):
            return ""
        since = time_of(condition_of(pod, "Ready").get("lastTransitionTime"))
    return f"node {name} is not ready" + (f" since {span(since, now)}" if since is not None else "")


def span(since: datetime, now: float) -> str:
    """Returns how long ago a time was.

    >>> begin = datetime.fromtimestamp(1000)
    >>> span(begin, 1040.4), span(begin, 8300)
    ('40 s', '2 h 1 min')
    """
    seconds = max(0, int(now - since.timestamp()))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def note_key(pod: Object) -> str:
    """Returns the annotation of a job under which it is noted why a pod was taken away."""
    index = annotation(pod, "batch.kubernetes.io/job-completion-index") or "0"
    return f"{DISRUPTED}{index}-{str(pod['metadata'].get('name', '')).rpartition('-')[2]}"[
        : len(DISRUPTED) + 40
    ]


def noted(main: Object) -> dict[int, list[str]]:
    """Returns why pods of a job were taken away, by replica, as far as torchx looked on."""
    notes = (main.get("metadata") or {}).get("annotations") or {}
    result: dict[int, list[tuple[str, str]]] = {}
    for key, text in notes.items():
        index = str(key).removeprefix(DISRUPTED).partition("-")[0]
        number = count_of(index) if str(key).startswith(DISRUPTED) else None
        if number is not None:
            at, _, why = str(text).partition(" ")
            result.setdefault(number, []).append((at, short(why)))
    return {index: [why for _, why in sorted(each)] for index, each in result.items()}


def count_before(pod: Object) -> int:
    """Returns how often the replica of a pod was taken away before."""
    return count_of(annotation(pod, IGNORED_COUNT)) or 0
