"""The readiness and the ends of the pods of services; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    conditions_of,
    deleted,
    owns,
    time_of,
    value_at,
)
from torchx.schedulers.kubernetes.names import LATE, READY
from torchx.schedulers.kubernetes.objects import Facts, role_index
from torchx.schedulers.kubernetes.services.roles import services_of
from torchx.schedulers.kubernetes.state.attempts import attempts_of, container_of, ended_by_us
from torchx.schedulers.kubernetes.state.replicas import replica_of
from torchx.services.probe import LOG, ServiceRule
from torchx.supervisor.policy import RoleRules


def is_ready(pod: Object, rule: ServiceRule) -> bool:
    """Returns True if a pod of a service runs and is ready.

    Args:
        pod: the pod.
        rule: the rule of the service.
    """
    if not is_active(pod):
        return False
    if rule.probe.kind == LOG:
        return bool(annotation(pod, READY))
    condition = conditions_of(pod).get("Ready", {})
    return bool(container_of(pod).get("ready")) and condition.get("status") != "False"


def ready_since(pod: Object) -> str:
    """Returns the time since which a pod is ready, as in its mark or its condition; empty without one."""
    condition = conditions_of(pod).get("Ready", {})
    since = condition.get("lastTransitionTime") if condition.get("status") == "True" else ""
    return annotation(pod, READY) or str(since or "")


def is_late(pod: Object, rule: ServiceRule, at: float) -> bool:
    """Returns True if a pod was not ready within the limit of its service.

    Args:
        pod: the pod.
        rule: the rule of the service.
        at: the current time, in seconds since the epoch.
    """
    started = time_of(value_at(container_of(pod), "state", "running", "startedAt"))
    if started is None or not is_active(pod) or is_ready(pod, rule):
        return False
    if at - started.timestamp() <= rule.limit:
        return False
    if rule.probe.kind == LOG:
        return True
    # one that was ready before has a later change
    changed = time_of(value_at(conditions_of(pod), "Ready", "lastTransitionTime"))
    return changed is None or changed <= started


def is_active(pod: Object) -> bool:
    """Returns True if the program of a pod runs, and nothing ends it."""
    running = "running" in (container_of(pod).get("state") or {})
    return running and not (deleted(pod) or ended_by_us(pod) or annotation(pod, LATE))


def ready_replicas(facts: Facts, rules: Sequence[RoleRules]) -> Iterator[int]:
    """Yields the ordinals of the replicas of services that are ready.

    Args:
        facts: the application.
        rules: the rules of all roles.
    """
    services = services_of(facts)
    for main in facts.mains:
        number = role_index(main)
        if number is None or number not in services:
            continue
        ordinals = rules[number].replicas
        for pod in facts.pods:
            ordinal = ordinals.start + replica_of(pod)[1]
            if ordinal in ordinals and owns(main, pod) and is_ready(pod, services[number]):
                yield ordinal


def succeeded_at(main: Object, pod: Object | None) -> float:
    """Returns the time when a replica has succeeded, else that of its job, in seconds since the epoch."""
    ended = None
    if pod is not None:
        ended = attempts_of(pod, 1)[-1].ended_at
    at = ended or time_of(value_at(main, "status", "completionTime"))
    if at is not None:
        return at.timestamp()
    return 0.0
