"""The part of probing that a cluster does not do: time limits, their messages, and probes of log lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from torchx.schedulers.kubernetes.api.bulk import BulkReader
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.objects import Object, annotation, owns, short, text_at
from torchx.schedulers.kubernetes.api.pod_ends import now
from torchx.schedulers.kubernetes.logs import SILENCE, Source, read_log
from torchx.schedulers.kubernetes.names import LATE, READY
from torchx.schedulers.kubernetes.objects import Facts, role_index
from torchx.schedulers.kubernetes.services.readiness import is_active, is_late, is_ready, ready_since
from torchx.schedulers.kubernetes.services.roles import is_released, services_of
from torchx.schedulers.kubernetes.state.evidence import events_of
from torchx.schedulers.kubernetes.state.replicas import Member
from torchx.scheduling.logs import LogQuery
from torchx.services.probe import LOG, ServiceRule
from torchx.supervisor.services.probes import LONGEST_CHECK, LineCheck
from torchx.supervisor.services.watch import not_ready

LARGEST_LOG = 16_000_000
"""Maximum bytes of a log that are searched for a line."""
AT_A_TIME = 1 << 18
"""Bytes of a log that are searched together."""
UNANSWERED = 2 * LONGEST_CHECK
"""Seconds after the limit of a pod in which its first probe may still answer, as on a loaded node."""
_FAILED = ("Readiness probe failed: ", "Readiness probe errored: ")
_STATUS = "HTTP probe failed with statuscode: "


def probe(cluster: Cluster, facts: Facts, at: float) -> tuple[bool, bool]:
    """Marks pods that are ready, with the time, and ends those that are not ready in time.

    The cluster probes ports and programs; the mark keeps the time after the end of the pod.

    Args:
        cluster: the cluster.
        facts: the application.
        at: the current time, in seconds since the epoch.

    Returns:
        Whether a pod was changed, and whether one is not ready yet.
    """
    changed = waits = False
    for rule, pod in _pods(facts):
        since = _new_since(cluster, facts, pod, rule)
        if since:
            _patch(cluster, facts, pod, {"metadata": {"annotations": {READY: since}}})
            changed = True
        elif is_late(pod, rule, at):
            answer = _answer(cluster, facts, pod, rule)
            if not answer and not is_late(pod, rule, at - UNANSWERED):
                waits = True
                continue
            why = not_ready(rule, answer or "no answer")
            # its log stays, and it counts as failed
            change = {"metadata": {"annotations": {LATE: why}}, "spec": {"activeDeadlineSeconds": 1}}
            _patch(cluster, facts, pod, change)
            changed = True
        else:
            waits = waits or not is_ready(pod, rule)
    return changed, waits


def _pods(facts: Facts) -> Iterator[tuple[ServiceRule, Object]]:
    """Yields the running pods of services that are needed."""
    services = services_of(facts)
    for main in facts.mains:
        rule = services.get(-1 if (number := role_index(main)) is None else number)
        if rule is not None and not is_released(main):
            for pod in facts.pods:
                if owns(main, pod) and is_active(pod):
                    yield rule, pod


def _new_since(cluster: Cluster, facts: Facts, pod: Object, rule: ServiceRule) -> str:
    """Returns since when a pod that has no mark is ready; empty if it has one, or is not ready."""
    if annotation(pod, READY):
        return ""
    if rule.probe.kind == LOG:
        if _has_line(cluster, facts, pod, rule):
            return now(cluster)
        return ""
    if is_ready(pod, rule):
        return ready_since(pod) or now(cluster)
    return ""


def _patch(cluster: Cluster, facts: Facts, pod: Object, change: Object) -> None:
    cluster.patch(path_of("v1", "pods", facts.namespace, pod["metadata"]["name"]), change)


def _has_line(cluster: Cluster, facts: Facts, pod: Object, rule: ServiceRule) -> bool:
    """Returns True if the log of a pod has the line."""
    check = LineCheck(rule.probe.text)
    source = Source(str(pod["metadata"]["name"]), 0, False, Member("", 0, 0), 1, False)
    with closing(BulkReader(cluster, SILENCE)) as reader:
        size = searched = 0
        held: list[bytes] = []
        for _, _, line in read_log(reader, facts, source, 0, LogQuery()):
            held.append(line)
            size += len(line)
            if size >= searched + AT_A_TIME:
                check.feed(0, b"".join(held))
                held, searched = [], size
            if check.poll() is not None or check.answer or size > LARGEST_LOG:
                break
        check.feed(0, b"".join(held))
    return check.poll() is not None


def _answer(cluster: Cluster, facts: Facts, pod: Object, rule: ServiceRule) -> str:
    """Returns the last answer of a probe, from the events of the pod; empty without one."""
    if rule.probe.kind == LOG:
        return "no line matched"
    events = events_of(cluster, facts.namespace, str(pod["metadata"]["name"]))
    failed = [event for event in events if event.get("reason") == "Unhealthy"]
    newest = max(failed, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), default=None)
    if newest is None:
        return ""
    return answer_of(text_at(newest, "message"))


def answer_of(message: str) -> str:
    """Returns the answer of a probe from the message of its event.

    >>> answer_of("Readiness probe failed: HTTP probe failed with statuscode: 503"), answer_of("")
    ('HTTP 503', 'no answer')
    """
    for prefix in _FAILED:
        message = message.removeprefix(prefix)
    text = short(message)
    if text.startswith(_STATUS):
        return f"HTTP {text.removeprefix(_STATUS)}"
    return text or "no answer"
