"""Checks of applications and of requests for them: one implementation and one exit code for each mistake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from torchx.errors import OwnershipError, StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.machine import port_names, ports
    from torchx.services import rules

if TYPE_CHECKING:
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx.specs.status import RoleStatus


def check_names(app: AppDef) -> None:
    """Checks that commands can name each role, that ports are valid, and that no variable has two meanings.

    Raises:
        UsageError: the name of a role has a slash, a port is invalid, or two names make the same variable.
    """
    users: dict[str, str] = {}
    for role in app.roles:
        if "/" in role.name:
            raise UsageError(
                f"the name of role `{role.name}` has a slash, so no command could name its replicas",
                hint=f"e.g. {role.name.replace('/', '-')}",
            )
        variables = [(rules.hosts_variable(role.name), f"role `{role.name}`")]
        for name, port in role.port_map.items():
            if type(port) is not int or not 0 < port <= port_names.LARGEST_PORT:
                expected = f"expected 1 to {port_names.LARGEST_PORT}"
                raise UsageError(f"role `{role.name}` has the port {port!r} (`{name}`), {expected}")
            variables.append((ports.port_variable(name), f"port `{name}` ({port})"))
        for variable, user in variables:
            if (other := users.setdefault(variable, user)) != user:
                raise UsageError(f"{other} and {user} would share the variable {variable}", hint="rename one")


def is_utf8(text: str) -> bool:
    """Returns True if a text has no escaped bytes, which JSON and YAML cannot hold."""
    return text.isascii() or text == text.encode("utf-8", "ignore").decode()


def require_hosts(app: AppDef, names: Iterable[str], scheduler: str, *, known: bool) -> None:
    """Checks that macros of hosts name roles, and that the scheduler knows their hosts.

    Args:
        app: the application.
        names: the names in the macros.
        scheduler: the name of the scheduler.
        known: whether it knows the hosts before the start.

    Raises:
        UsageError: one does not name a role, or the scheduler does not know the hosts.
    """
    roles = [role.name for role in app.roles]
    for name in names:
        if name not in roles:
            raise UsageError(
                f"the macro `${{hosts.{name}}}` names no role of application `{app.name}`",
                hint=did_you_mean(name, roles, f"roles: {', '.join(roles)}"),
            )
        if not known:
            raise UsageError(
                f"{scheduler} does not replace the macro `${{hosts.{name}}}`: it does not know the hosts yet",
                hint="the macro rank0_env is the variable with the host of replica 0 of the first role",
            )


def require_images(app: AppDef, needed_by: str) -> None:
    """Checks that each role has an image.

    Args:
        app: the application.
        needed_by: the scheduler or the run option that needs images, for the message.

    Raises:
        UsageError: a role has no image.
    """
    for role in app.roles:
        if not role.image:
            raise UsageError(f"role `{role.name}` has no image, and {needed_by} needs one")


def require_application(info: AnyDryRunInfo) -> AppDef:
    """Returns the application of a request.

    Raises:
        UsageError: the request has no application, as `submit_dryrun` did not make it.
    """
    if info.app is None:
        raise UsageError(
            "a request can be submitted only with the application it was made from",
            hint="submit the result of `submit_dryrun`",
        )
    return info.app


def unknown_application(scheduler: str, app_id: str) -> StateError:
    """Returns the error for an application that an engine does not know."""
    return StateError(
        f"{scheduler} knows no application `{app_id}`",
        hint="all applications: torchx list",
        code="unknown_application",
        facts={"scheduler": scheduler, "given": app_id},
    )


def replicas_in(roles: Iterable[RoleStatus]) -> dict[str, list[int]]:
    """Returns the ids of the replicas of each role."""
    return {role.role: [replica.id for replica in role.replicas] for role in roles}


def require_role(app: str, roles: Iterable[str], role: str) -> None:
    """Checks that an application has a role.

    Args:
        app: its id or handle, for the message.
        roles: its roles.
        role: the requested role.

    Raises:
        StateError: it has no such role.
    """
    known = list(roles)
    if role not in known:
        hint = did_you_mean(role, known, f"its roles: {', '.join(known)}")
        raise StateError(f"{app} has no role `{role}`", hint=hint, code="unknown_role", facts={"given": role})


def require_readable(app: str, owner: str) -> None:
    """Checks that an application does not belong to another user: its replicas are not known.

    Args:
        app: its id, for the message.
        owner: the other user; empty for an application of the caller.

    Raises:
        OwnershipError: it does.
    """
    if owner:
        raise OwnershipError(
            f"{app} belongs to the user {owner}: its replicas are private", facts={"owner": owner}
        )


def require_replicas(
    app: str, replicas: Mapping[str, Sequence[int]], role: str, requested: Iterable[int]
) -> None:
    """Checks that an application has replicas.

    Args:
        app: its id or handle, for the message.
        replicas: the ids of the replicas of each role; empty for a role whose replicas are not known yet.
        role: the requested role.
        requested: the requested replicas.

    Raises:
        StateError: it has no such role or replica.
    """
    require_role(app, replicas, role)
    known = replicas[role]
    for replica in requested:
        if known and replica not in known:
            if len(known) > 1:
                valid = f"replicas are {min(known)} to {max(known)}"
            else:
                valid = f"only replica is {known[0]}"
            raise StateError(
                f"{app} has no replica {role}/{replica}; its {valid}",
                code="unknown_replica",
                facts={"given": f"{role}/{replica}"},
            )
