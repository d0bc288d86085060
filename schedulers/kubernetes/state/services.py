"""The services of an application and its order of starts; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchx.json_limits import Data
from torchx.json_shape import items_at
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    conditions_of,
    deleted,
    owns,
    time_of,
    value_at,
)
from torchx.schedulers.kubernetes.facts import Facts, role_index
from torchx.schedulers.kubernetes.manifests.escaping import MacroFiller
from torchx.schedulers.kubernetes.names import AWAITS, LATE, READY, RELEASED
from torchx.schedulers.kubernetes.state.attempts import attempts_of, container_of, ended_by_us
from torchx.schedulers.kubernetes.state.replicas import replica_of
from torchx.services.probe import LOG, ServiceRule, rule_of
from torchx.settings import AFTER, SERVICE
from torchx.supervisor.policy import REPLICA, ROLE, RoleRules


def has_order(facts: Facts) -> bool:
    """Returns True if an application has services, or roles that start after others."""
    return facts.kind == "job" and any({SERVICE, AFTER} & _metadata(role).keys() for role in facts.roles)


def services_of(facts: Facts) -> dict[int, ServiceRule]:
    """Returns the rules of the services by the numbers of their roles."""
    found = {number: _metadata(role).get(SERVICE) for number, role in enumerate(facts.roles)}
    filler = MacroFiller(facts.app_id, None)
    return {number: _rule(data, filler) for number, data in found.items() if data is not None}


def _rule(data: object, filler: MacroFiller) -> ServiceRule:
    """Returns the rule of a service, with the macros of its probe substituted."""
    rule = rule_of(data)
    return rule._replace(probe=rule.probe._replace(text=filler.value_of(rule.probe.text)))


def names_of(facts: Facts) -> list[str]:
    """Returns the names of all roles."""
    return [str(role["name"]) for role in facts.roles]


def awaits(main: Object) -> bool:
    """Returns True if a job has not started, since it waits for other roles."""
    return bool(annotation(main, AWAITS))


def is_released(main: Object) -> bool:
    """Returns True if torchx ends a job that is no longer needed."""
    return bool(annotation(main, RELEASED))


def with_order(rule: RoleRules, role: Data, main: Object | None) -> RoleRules:
    """Returns the rules of a role, with those of a service and the roles that it still waits for.

    Args:
        rule: its rules of retries.
        role: the role in the record.
        main: its job.
    """
    data = _metadata(role).get(SERVICE)
    if data is not None:
        # a replica that has ended with exit code 0 is not restarted by a job
        if rule.retry_policy == REPLICA:
            policy = ROLE
        else:
            policy = rule.retry_policy
        rule = rule._replace(service=True, critical=rule_of(data).critical, retry_policy=policy)
    if main is not None and awaits(main):
        rule = rule._replace(after=tuple(before_of(role)))
    return rule


def before_of(role: Data) -> list[str]:
    """Returns the names of the roles that a recorded role starts after."""
    return items_at(_metadata(role), str, AFTER)


def _metadata(role: Data) -> Data:
    return role.get("metadata") or {}


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
