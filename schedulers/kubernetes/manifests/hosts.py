"""The hosts of all roles of an application: their addresses, known before the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.services import rules
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.checks import hosts_in

LONGEST = 16_000
"""Maximum length of the hosts of a role in a pod; each pod of a listing has them."""
LONGEST_IN_ALL = 200_000
"""The same for all templates of one object together."""


def hosts_of(
    app: AppDef, app_id: str, pods: Sequence[str], *, gang: bool = False, templates: int = 1
) -> dict[str, str]:
    """Returns the addresses of the replicas of each role, separated by commas; empty if nothing uses them.

    Args:
        app: the application.
        app_id: its id, without the namespace; the subdomain of its pods.
        pods: the host name of a replica of each role, with ``{}`` for its number.
        gang: torchx restarts roles as a whole, with other host names.
        templates: the pod templates in one object.

    Raises:
        UsageError: a macro would be replaced by too many hosts.
    """
    used = hosts_in(app)
    if len(app.roles) < 2 and not used:
        return {}
    found = {}
    longest = min(LONGEST, LONGEST_IN_ALL // max(templates * len(app.roles), 1))
    for role, pod in zip(app.roles, pods, strict=True):
        if is_stable(app, role, gang=gang):
            domain = ""
        else:
            domain = f".{app_id}"
        if role.num_replicas * (len(pod) + len(domain) + 4) > longest:
            if role.name in used:
                raise UsageError(
                    f"the macro `${{hosts.{role.name}}}` would be replaced by {role.num_replicas:,} hosts, "
                    "which is too long",
                    hint=f"the address of replica N is {pod.format('N')}{domain}",
                )
            continue
        found[role.name] = ",".join(pod.format(n) + domain for n in range(role.num_replicas))
    return found


def is_stable(app: AppDef, role: Role, *, gang: bool) -> bool:
    """Returns True if each replica of a role has a service of its own, with the same name in all attempts.

    Roles that continue during a restart of this one need it: the host names change with the attempt.

    Args:
        app: the application.
        role: the role.
        gang: torchx restarts roles as a whole.
    """
    alone = role.retry_policy is RetryPolicy.ROLE or SERVICE in role.metadata
    restarts = role.max_retries > 0 and role.retry_policy is not RetryPolicy.APPLICATION
    return gang and len(app.roles) > 1 and restarts and alone


def address_variables(app: AppDef, hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the hosts and the ports of all roles; the first role counts for a name.

    Args:
        app: the application.
        hosts: the hosts of each role.
    """
    if hosts:
        return rules.addresses(app, hosts)
    return {}


def hosts_in_env(roles: Sequence[Data], env: Sequence[Data]) -> dict[str, str]:
    """Returns the hosts of the roles in the environment of a container, for describing an application.

    Args:
        roles: the recorded roles.
        env: the entries of the container.
    """
    values = {entry.get("name"): entry.get("value") for entry in env}
    return dict(_named(roles, values))


def _named(roles: Sequence[Data], values: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for role in roles:
        value = values.get(rules.hosts_variable(str(role["name"])))
        if isinstance(value, str):
            yield str(role["name"]), value
