"""Checks of an application for local processes: errors, and notes on fields that are not honoured."""

from __future__ import annotations

import os

from torchx.errors import StateError
from torchx.jobs.paths import check_file_name
from torchx.lazy import lazy_imports
from torchx.machine import processes
from torchx.settings import SERVICE
from torchx.specs.app import AppDef, Role
from torchx.specs.checks import require_roles

with lazy_imports:
    from torchx.leases import machine


def check(app: AppDef) -> None:
    """Checks an application; resources are optional for processes.

    Raises:
        UsageError: it has no roles, or a name is too long for a file.
    """
    require_roles(app)
    for kind, name in (("application", app.name), *(("role", role.name) for role in app.roles)):
        check_file_name(kind, name)


def require_system(scheduler: str) -> None:
    """Checks that this system can supervise processes.

    Raises:
        StateError: it cannot; the message names the missing requirement.
    """
    lacking = processes.missing()
    if lacking is not None:
        raise StateError(
            f"{scheduler} needs {lacking}", hint="run it elsewhere: -s local_docker, -s slurm, -s kubernetes"
        )


def notes_of(app: AppDef, *, reserves: bool = False) -> list[str]:
    """Returns a warning for each field of the application that this machine cannot honour.

    Args:
        app: the application.
        reserves: it reserves its CPUs and memory, which is an error if the machine has too little.
    """
    notes = []
    for message, applies in _UNSUPPORTED:
        roles = [role.name for role in app.roles if applies(role)]
        if roles and not (reserves and applies is _exceeds_machine):
            notes.append(f"{message} (role {', '.join(roles)})")
    return notes + _notes_of_limits(app) + _notes_of_ports(app)


def _notes_of_limits(app: AppDef) -> list[str]:
    """Returns a warning for roles that request more than this process, and so its replicas, may use."""
    within = [role.resource for role in app.roles if not _exceeds_machine(role)]
    if not any(resource.cpu > 0 or resource.memMB > 0 for resource in within):
        return []
    cpus, memory = machine.usable_cpus(), machine.usable_memory() >> 20
    notes = []
    if any(resource.cpu > cpus for resource in within):
        limited = f"may use {cpus:g} of {os.cpu_count()} CPUs, by its CPU mask or its control group"
        notes.append(f"a replica requests more CPUs than it gets: this process {limited}")
    if any(resource.memMB > memory for resource in within):
        limited = f"may use {memory:,} MiB, by its control group"
        notes.append(f"a replica requests more memory than it gets: this process {limited}")
    return notes


def _notes_of_ports(app: AppDef) -> list[str]:
    """Returns a warning for each port that several replicas of services would listen on."""
    users: dict[str, list[Role]] = {}
    for role in app.roles:
        if SERVICE in role.metadata:
            for name in role.port_map:
                users.setdefault(name, []).append(role)
    return [
        f"port `{name}` is one port of this machine for {_replicas_of(roles)}"
        for name, roles in users.items()
        if sum(role.num_replicas for role in roles) > 1
    ]


def _replicas_of(roles: list[Role]) -> str:
    if len(roles) == 1:
        return f"all replicas of service `{roles[0].name}`"
    names = ", ".join(f"`{role.name}`" for role in roles)
    return f"the services {names}: use different names in `port_map`"


def _exceeds_machine(role: Role) -> bool:
    """Returns True if one replica requests more than the whole machine has."""
    resource, memory = role.resource, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return resource.cpu > (os.cpu_count() or 1) or resource.memMB > memory


_UNSUPPORTED = (
    ("a replica requests more CPU or memory than this machine has; no limit is applied", _exceeds_machine),
    ("mounts are ignored for local processes: they see the files of this machine", lambda r: bool(r.mounts)),
    (
        "devices are ignored for local processes: they see those of this machine",
        lambda r: bool(r.resource.devices),
    ),
    (
        "min_replicas is ignored for local processes: all replicas start",
        lambda r: r.min_replicas not in (None, r.num_replicas),
    ),
)
