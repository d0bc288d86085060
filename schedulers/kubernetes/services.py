"""Carries out the order of starts, probes services, and ends those that are late or no longer needed.

Each step can be repeated by any process: a start is conditional on the unchanged job, so it never follows a
cancellation, and a job that is marked as no longer needed is ended by the next process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from torchx.schedulers.kubernetes.api.bulk import BulkReader
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.objects import Object, annotation, owns, short, text_at
from torchx.schedulers.kubernetes.cancel import end_jobs, has_failed, is_to_be_ended, now
from torchx.schedulers.kubernetes.facts import Facts, is_ended_by_us, role_index
from torchx.schedulers.kubernetes.logs import SILENCE, Source, read_log
from torchx.schedulers.kubernetes.names import AWAITS, HELD, LATE, READY, RELEASED, STOPPED
from torchx.schedulers.kubernetes.objects import events_of
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.replicas import Member
from torchx.schedulers.kubernetes.state.restarts import is_cancelled, replay_of
from torchx.schedulers.kubernetes.state.services import (
    awaits,
    is_active,
    is_late,
    is_ready,
    is_released,
    names_of,
    ready_since,
    services_of,
)
from torchx.scheduling.logs import LogQuery
from torchx.services.probe import LOG, ServiceRule
from torchx.specs.status import is_terminal
from torchx.supervisor.services.probes import LONGEST_CHECK, LineCheck
from torchx.supervisor.services.watch import not_ready


def coordinate(cluster: Cluster, facts: Facts) -> bool:
    """Brings the services of an application and its order of starts to the due state.

    Returns:
        False if something remains to be done later, also without a change of its objects.
    """
    if is_cancelled(facts):
        return True
    plan = plan_of(facts)
    if plan.end:
        end_jobs(cluster, facts, plan.end, STOPPED)
        return True
    if plan.release:
        for main in plan.release:
            if is_terminal(job_facts("job", main).state):  # it has ended by itself meanwhile
                change = {"metadata": {"annotations": {RELEASED: now(cluster)}}}
                cluster.patch(facts.path_of(main), change)
        end_jobs(cluster, facts, plan.release, RELEASED)
        return True
    started = [_start(cluster, facts, main) for main in plan.start]
    changed, waits = probe(cluster, facts, cluster.clock.now())
    return all(started) and not (changed or waits)


def _start(cluster: Cluster, facts: Facts, main: Object) -> bool:
    """Starts a job that has waited for others; returns False if another process has changed it."""
    change = {"metadata": {"annotations": {AWAITS: None}}, "spec": {"suspend": False}}
    return cluster.patch_unchanged(facts.path_of(main), main, change)


class Plan(NamedTuple):
    """The next steps of an application with services or an order of starts.

    Attributes:
        start: the jobs to start.
        release: the jobs that are no longer needed, and not marked as such.
        end: the jobs to end after a failure.
    """

    start: list[Object]
    release: list[Object]
    end: list[Object]


def plan_of(facts: Facts) -> Plan:
    """Returns the next steps, if no restart is due and the application was not cancelled."""
    if any(annotation(main, HELD) for main in facts.mains) or len(facts.mains) < len(names_of(facts)):
        return Plan([], [], [])  # its submission, or its deletion, is not complete
    replay = replay_of(facts)
    gang = replay.gang
    if facts.fails_fast and (gang.first_failure is not None or _has_failed(facts)):
        return Plan([], [], [main for main in facts.mains if is_to_be_ended(facts, main)])
    if gang.released:
        return Plan([], _not_released(facts), [])
    started = {n for n, rule in enumerate(replay.rules) if all(map(gang.wants, rule.replicas))}
    return Plan([m for m in facts.mains if awaits(m) and role_index(m) in started], [], [])


def _not_released(facts: Facts) -> list[Object]:
    """Returns the jobs that are no longer needed, and not marked as such."""
    services = services_of(facts)
    due = [main for main in facts.mains if role_index(main) in services or awaits(main)]
    return [main for main in due if not (is_ended_by_us(main) or _was_tolerated(main, services))]


def _rule_of(main: Object, services: Mapping[int, ServiceRule]) -> ServiceRule | None:
    number = role_index(main)
    if number is None:
        return None
    return services.get(number)


def _was_tolerated(main: Object, services: Mapping[int, ServiceRule]) -> bool:
    """Returns True if a service that is not critical has ended by itself."""
    rule = _rule_of(main, services)
    return rule is not None and not rule.critical and is_terminal(job_facts("job", main).state)


def _has_failed(facts: Facts) -> bool:
    return any(has_failed(facts, main) for main in _needed(facts))


def _needed(facts: Facts) -> Iterator[Object]:
    """Yields the jobs whose failure is a failure of the application."""
    services = services_of(facts)
    for main in facts.mains:
        rule = _rule_of(main, services)
        if (rule is None or rule.critical) and not is_released(main):
            yield main


LARGEST_LOG = 16_000_000
"""Maximum bytes of a log that are searched for a line."""
AT_A_TIME = 1 << 18
"""Bytes of a log that are searched together."""
UNANSWERED = 2 * LONGEST_CHECK
"""Seconds after the limit of a pod in which its first probe may still answer, as on a loaded node."""
_PROBE_FAILED = ("Readiness probe failed: ", "Readiness probe errored: ")
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
    for rule, pod in _service_pods(facts):
        since = _new_since(cluster, facts, pod, rule)
        if since:
            _patch_pod(cluster, facts, pod, {"metadata": {"annotations": {READY: since}}})
            changed = True
        elif is_late(pod, rule, at):
            answer = _answer(cluster, facts, pod, rule)
            if not answer and not is_late(pod, rule, at - UNANSWERED):
                waits = True
                continue
            why = not_ready(rule, answer or "no answer")
            # its log stays, and it counts as failed
            change = {"metadata": {"annotations": {LATE: why}}, "spec": {"activeDeadlineSeconds": 1}}
            _patch_pod(cluster, facts, pod, change)
            changed = True
        else:
            waits = waits or not is_ready(pod, rule)
    return changed, waits


def _service_pods(facts: Facts) -> Iterator[tuple[ServiceRule, Object]]:
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


def _patch_pod(cluster: Cluster, facts: Facts, pod: Object, change: Object) -> None:
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
    for prefix in _PROBE_FAILED:
        message = message.removeprefix(prefix)
    text = short(message)
    if text.startswith(_STATUS):
        return f"HTTP {text.removeprefix(_STATUS)}"
    return text or "no answer"
