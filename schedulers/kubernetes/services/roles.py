"""The services of an application and its order of starts, read from its record and its jobs."""

from __future__ import annotations

from torchx.json_limits import Data
from torchx.json_shape import items_at
from torchx.schedulers.kubernetes.api.objects import Object, annotation
from torchx.schedulers.kubernetes.manifests.escaping import MacroFiller
from torchx.schedulers.kubernetes.names import AWAITS
from torchx.schedulers.kubernetes.objects import RELEASED, Facts
from torchx.services.probe import ServiceRule, rule_of
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
