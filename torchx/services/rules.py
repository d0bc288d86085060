"""The rules of services in an application: their probes, their time limits, the order of starts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.settings import AFTER, SERVICE
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.machine import ports
    from torchx.services import probe

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role

HOSTS = "TORCHX_HOSTS_"
"""Prefix of the variables with the hosts of a role's replicas, separated by commas."""


def after_of(role: Role) -> list[str]:
    """Returns the roles that must be ready before a role starts.

    Raises:
        UsageError: its metadata name no roles.
    """
    names = role.metadata.get(AFTER, [])
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"role `{role.name}` starts after {names!r}, expected a list of role names")
    return list(names)


def set_default_order(app: AppDef) -> None:
    """Lets ordinary roles without an order of their own start when the services with a probe are ready.

    A service that starts after such a role, also through other roles, is left out. The metadata of the roles
    are changed.

    Raises:
        UsageError: the metadata of a role name no roles.
    """
    probed = [r.name for r in app.roles if SERVICE in r.metadata and probe.rule_of(r.metadata[SERVICE]).ready]
    order = {role.name: after_of(role) for role in app.roles}
    for role in app.roles:
        if probed and not {SERVICE, AFTER} & role.metadata.keys():
            before = [name for name in probed if not _cycle({**order, role.name: [name]})]
            role.metadata[AFTER] = order[role.name] = before


def check(app: AppDef) -> None:
    """Checks the services of an application and its order of starts.

    Raises:
        UsageError: a probe, a time limit or a role is invalid, all roles are services, roles wait for each
            other, or two roles would have the same variable for their hosts.
    """
    known = [role.name for role in app.roles]
    for role in app.roles:
        if SERVICE in role.metadata:
            _check_service(role, app)
        for name in after_of(role):
            if name not in known:
                raise UsageError(
                    f"role `{role.name}` starts after `{name}`, which is not a role of `{app.name}`",
                    hint=did_you_mean(name, known, f"roles: {', '.join(known)}"),
                )
    if all(SERVICE in role.metadata for role in app.roles):
        raise UsageError(
            f"all roles of application `{app.name}` are services, so it would never end",
            hint="an application ends when its ordinary roles have succeeded; at least one must be ordinary",
        )
    cycle = _cycle({role.name: after_of(role) for role in app.roles})
    if cycle:
        raise UsageError(f"roles wait for each other: {' after '.join(cycle)}")
    names: dict[str, str] = {}
    for name in known:
        variable = hosts_variable(name)
        if names.setdefault(variable, name) != name:
            raise UsageError(f"roles `{names[variable]}` and `{name}` share the variable {variable}")


def _check_service(role: Role, app: AppDef) -> None:
    try:
        rule = probe.ServiceRule.of(role.metadata[SERVICE])
    except ValueError as error:
        raise UsageError(f"service `{role.name}` of application `{app.name}` {error}") from None
    port = rule.probe.port
    if port and not port.isdigit() and port not in role.port_map:
        names = ", ".join(role.port_map) or "none"
        raise UsageError(
            f"the probe `{rule.ready}` of service `{role.name}` names the port `{port}`, which is not in "
            f"its port_map",
            hint=f"names of its ports: {names}",
        )


def _cycle(after: Mapping[str, list[str]]) -> list[str]:
    """Returns the roles of a cycle, the first one again at the end; empty without one.

    >>> _cycle({"a": ["b"], "b": ["a"]}), _cycle({"a": ["b"], "b": []})
    (['a', 'b', 'a'], [])
    """
    done: set[str] = set()
    for root in after:
        path = [root]
        branches = [iter(after[root])]
        while branches:
            name = next(branches[-1], None)
            if name is None:
                branches.pop()
                done.add(path.pop())
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in done:
                path.append(name)
                branches.append(iter(after.get(name, ())))
    return []


def of_role(role: Role) -> tuple[Object | None, tuple[str, ...]]:
    """Returns the rule of a service as metadata, None for an ordinary role, and the roles before it."""
    rule = None
    if SERVICE in role.metadata:
        rule = probe.ServiceRule.of(role.metadata[SERVICE]).plain()
    return rule, tuple(after_of(role))


def reject(app: AppDef, scheduler: str) -> None:
    """Rejects an application with services or an order of starts, for an engine without them.

    Raises:
        UsageError: always.
    """
    roles = [role.name for role in app.roles if SERVICE in role.metadata or role.metadata.get(AFTER)]
    raise UsageError(
        f"{scheduler} does not run services, nor roles that start after others: {', '.join(roles)}",
        hint="run the application on this machine: -s local_cwd",
    )


def hosts_variable(role: str) -> str:
    """Returns the name of the variable with the hosts of a role.

    >>> hosts_variable("web-ui")
    'TORCHX_HOSTS_WEB_UI'
    """
    return HOSTS + re.sub(r"\W", "_", role, flags=re.ASCII).upper()


def addresses(app: AppDef, hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the hosts and the ports of all roles; the first role counts for a name.

    Args:
        app: the application.
        hosts: the hosts of each role, separated by commas.
    """
    numbers = {ports.port_variable(name): str(port) for name, port in ports_of(app).items()}
    return host_variables(hosts) | numbers


def ports_of(app: AppDef) -> dict[str, int]:
    """Returns the ports of all roles; the first role counts for a name."""
    return {name: port for role in reversed(app.roles) for name, port in role.port_map.items()}


def host_variables(hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the hosts of all roles.

    Args:
        hosts: the hosts of each role, separated by commas.

    >>> host_variables({"server": "a,b"})
    {'TORCHX_HOSTS_SERVER': 'a,b'}
    """
    return {hosts_variable(role): value for role, value in hosts.items()}
