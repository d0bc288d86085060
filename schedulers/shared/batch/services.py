"""The services and the order of starts of a Slurm job, for its script and the agents of its replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchx.machine.ports import port_variable
from torchx.schedulers.shared.batch.node.files import node_file
from torchx.services.probe import ServiceRule, rule_of
from torchx.services.rules import after_of, hosts_variable
from torchx.settings import AFTER, SERVICE
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.checks import has_services, hosts_in
from torchx.specs.run_options import RunOptions


def rule(role: Role) -> ServiceRule | None:
    """Returns the rule of a service, None for an ordinary role."""
    if SERVICE in role.metadata:
        return ServiceRule.of(role.metadata[SERVICE])
    return None


def recorded_rule(role: Mapping[str, Any]) -> ServiceRule | None:
    """Returns the rule of a service in the record of a job, None for an ordinary role."""
    metadata = role.get("metadata")
    known = isinstance(metadata, Mapping) and SERVICE in metadata
    if isinstance(metadata, Mapping) and known:
        return rule_of(metadata[SERVICE])
    return None


def waits_for_others(role: Mapping[str, Any]) -> bool:
    """Returns True if a role in the record of a job starts after others."""
    metadata = role.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get(AFTER))


def assignments(app: AppDef) -> str:
    """Returns the line of the script that sets the variables of ``services.sh``; empty without services."""
    if not has_services(app):
        return ""
    numbers = {role.name: number for number, role in enumerate(app.roles)}
    services, failure, after = [], [], []
    for number, role in enumerate(app.roles):
        own = rule(role)
        if own is not None:
            services.append(f"[{number}]={role.num_replicas}")
            if effect := _effect_of_failure(role, own):
                failure.append(f"[{number}]={effect}")
        if before := after_of(role):
            after.append(f'[{number}]="{" ".join(str(numbers[name]) for name in before)}"')
    return " ".join(
        f"{name}=({' '.join(entries)})"
        for name, entries in (("services", services), ("failure", failure), ("after", after))
    )


def _effect_of_failure(role: Role, own: ServiceRule) -> str:
    """Returns the effect of the permanent failure of a service on its job; empty for that of other roles."""
    if own.critical:
        return ""
    whole = role.retry_policy is RetryPolicy.APPLICATION
    if whole and role.max_retries:
        return "ignored-last"
    return "ignored"


def ends_together(role: Role, cfg: RunOptions) -> bool:
    """Returns True if the failure of a replica ends the step of its role.

    A service with retries of the role is restarted; its other replicas would not end by themselves.
    """
    restarts = role.retry_policy is RetryPolicy.ROLE and role.max_retries > 0
    return bool(cfg.get("fail_fast", True)) or (SERVICE in role.metadata and restarts)


def replica_variables(number: int, role: Role, cfg: RunOptions) -> str:
    """Returns the variables of a replica for ``replica.sh``."""
    own = rule(role)
    if own is None:
        return "torchx_ready= torchx_probe= torchx_alone= torchx_optional="
    optional = ""
    if not own.critical:
        whole = role.max_retries > 0 and role.retry_policy is not RetryPolicy.REPLICA
        optional = "yes" if whole else "alone"
    probe = "yes" if own.ready else ""
    return (
        f'torchx_ready="$torchx_folder/.ready-{number}/$torchx_replica" torchx_probe={probe} '
        f"torchx_alone={'' if ends_together(role, cfg) else 'yes'} torchx_optional={optional}"
    )


def files(app: AppDef) -> dict[str, str]:
    """Returns the files for services, by their names in the folder of the files of all jobs."""
    if not has_services(app):
        return {}
    rules = {str(number): _plain(own) for number, role in enumerate(app.roles) if (own := rule(role))}
    return {
        "services.sh": node_file("services.sh"),
        "services.json": json.dumps(rules) + "\n",
        "readiness.py": node_file("readiness.py"),
    }


def _plain(own: ServiceRule) -> dict[str, Any]:
    port = own.probe.port
    variable = ""
    if port and not port.isdigit():
        variable = port_variable(port)
    return {"ready": own.ready, "within": own.within, "limit": own.limit, "port": variable}


def host_variables(app: AppDef) -> dict[str, int]:
    """Returns the variables for the hosts of each role, with its replicas; empty if one role uses none."""
    if len(app.roles) == 1 and not hosts_in(app):
        return {}
    return {hosts_variable(role.name): role.num_replicas for role in app.roles}
