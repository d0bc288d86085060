"""The rules of services in an application: their probes, their time limits, the order of starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.errors import UsageError
from torchx.scheduling.stalls import parse_duration
from torchx.settings import AFTER, SERVICE
from torchx.suggestions import did_you_mean

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role

HTTP, TCP, LOG, CMD, STARTED = "http", "tcp", "log", "cmd", ""
"""The kinds of probes; STARTED for none."""

FORMS = "http:PORT/path, tcp:PORT, log:REGEX or cmd:PROGRAM"

HOSTS = "TORCHX_HOSTS_"
"""Prefix of the variables with the hosts of a role's replicas, separated by commas."""

DEFAULT_LIMIT = 600.0
"""Seconds in which a replica must be ready, by default."""


class Probe(NamedTuple):
    """The probe of a service.

    Attributes:
        kind: HTTP, TCP, LOG, CMD or STARTED.
        port: the number or the name of the port; empty for the last three.
        text: the path of a request, the pattern, or the command line.
    """

    kind: str
    port: str = ""
    text: str = ""

    @classmethod
    def of(cls, ready: str) -> Probe:
        """Parses a probe.

        Raises:
            ValueError: it is invalid.

        >>> Probe.of("http:8000/health"), Probe.of("tcp:web")
        (Probe(kind='http', port='8000', text='/health'), Probe(kind='tcp', port='web', text=''))
        """
        kind, _, text = ready.partition(":")
        if not ready:
            return cls(STARTED)
        if kind in (HTTP, TCP):
            port, _, path = text.partition("/") if kind == HTTP else (text, "", "")
            number = int(port) if port.isascii() and port.isdigit() else None
            if not re.fullmatch(r"[\w-]+", port, re.ASCII) or (number is not None and not 0 < number < 65536):
                raise ValueError(f"`{port}` is not a port number or a name of port_map")
            if not re.fullmatch(r"[!-~]*", path):
                raise ValueError(f"`{path}` is not a valid path")
            return cls(kind, port, "/" + path if kind == HTTP else "")
        if kind == LOG and text:
            try:
                re.compile(text)
            except re.error as error:
                raise ValueError(f"`{text}` is not a valid pattern: {error}") from None
            return cls(kind, text=text)
        if kind == CMD and shlex.split(text):
            return cls(kind, text=text)
        raise ValueError(f"expected {FORMS}")


class ServiceRule(NamedTuple):
    """The rule of one service.

    Attributes:
        ready: the probe, as the user wrote it.
        probe: the probe.
        limit: seconds from the start of a replica in which it must be ready.
        within: the limit, as the user wrote it.
        critical: a failure of the service is a failure of the application.
    """

    ready: str = ""
    probe: Probe = Probe(STARTED)
    limit: float = DEFAULT_LIMIT
    within: str = "10m"
    critical: bool = True

    @classmethod
    def of(cls, data: object) -> ServiceRule:
        """Parses the metadata of a service.

        Raises:
            ValueError: they are invalid.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"expected the metadata of a service, got {data!r}")
        ready, within = data.get("ready", ""), data.get("within", "10m")
        if not isinstance(ready, str) or not isinstance(within, str):
            raise ValueError("`ready` and `within` are texts")
        try:
            probe = Probe.of(ready)
        except ValueError as error:
            raise ValueError(f"has the probe `{ready}`: {error}") from None
        limit = parse_duration(within)
        if not limit:
            raise ValueError(f"has within=`{within}`, expected a duration such as 90s or 10m")
        return cls(ready, probe, limit, within, data.get("critical", True) is not False)

    def plain(self) -> dict[str, Any]:
        """Returns the rule as metadata."""
        return {"ready": self.ready, "within": self.within, "critical": self.critical}


def after_of(role: Role) -> list[str]:
    """Returns the roles that must be ready before a role starts.

    Raises:
        UsageError: its metadata name no roles.
    """
    names = role.metadata.get(AFTER, [])
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"role `{role.name}` starts after {names!r}, expected a list of names of roles")
    return list(names)


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
        rule = ServiceRule.of(role.metadata[SERVICE])
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
                branches.append(iter(after[name]))
    return []


def of_role(role: Role) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Returns the rule of a service as metadata, None for an ordinary role, and the roles before it."""
    rule = ServiceRule.of(role.metadata[SERVICE]).plain() if SERVICE in role.metadata else None
    return rule, tuple(after_of(role))


def reject(app: AppDef, scheduler: str) -> None:
    """Rejects an application with services or an order of starts, for an engine without them.

    Raises:
        UsageError: always.
    """
    roles = [role.name for role in app.roles if {SERVICE, AFTER} & role.metadata.keys()]
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


def host_variables(hosts: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with the hosts of all roles.

    Args:
        hosts: the hosts of each role, separated by commas.

    >>> host_variables({"server": "a,b"})
    {'TORCHX_HOSTS_SERVER': 'a,b'}
    """
    return {hosts_variable(role): value for role, value in hosts.items()}


def rule_of(data: object) -> ServiceRule:
    """Returns the rule in a record; the default rule if the record is damaged."""
    try:
        return ServiceRule.of(data)
    except ValueError:
        return ServiceRule()
