"""Carries out the order of starts, and ends services that are not ready in time or no longer needed.

Each step can be repeated by any process: a start is conditional on the unchanged job, so it never follows a
cancellation, and a job that is marked as no longer needed is ended by the next process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.objects import Object, annotation
from torchx.schedulers.kubernetes.api.pod_ends import now
from torchx.schedulers.kubernetes.cancel import end_jobs, has_failed, is_to_be_ended
from torchx.schedulers.kubernetes.gang.restarts import is_cancelled, replay_of
from torchx.schedulers.kubernetes.names import AWAITS
from torchx.schedulers.kubernetes.objects import (
    HELD,
    RELEASED,
    STOPPED,
    Facts,
    is_ended_by_us,
    role_index,
)
from torchx.schedulers.kubernetes.services.probing import probe
from torchx.schedulers.kubernetes.services.roles import awaits, is_released, names_of, services_of
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.services.probe import ServiceRule
from torchx.specs.status import is_terminal


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
