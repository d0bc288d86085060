"""Checks of an application for Slurm: errors, and notes on unsupported features."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping

from torchx.errors import StateError, UsageError
from torchx.jobs.paths import check_file_name
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.directives import first_number, in_containers, role_options
from torchx.schedulers.slurm.options import sbatch_options, unknown_options
from torchx.schedulers.slurm.parse import hosts_of
from torchx.scheduling.checks import require_images, require_roles
from torchx.specs.app import AppDef
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal

TASKS_PER_NODE = 512
"""Slurm's default maximum of the tasks of a step on one node, its parameter MaxTasksPerNode."""
_OPTION = re.compile(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", re.MULTILINE)
_MAX_TASKS = re.compile(r"^MaxTasksPerNode\s*=\s*([1-9][0-9]{0,8})\s*$", re.MULTILINE)


def check(app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
    """Checks an application; resources are optional.

    Raises:
        UsageError: it has no roles, the name of a role is too long for a folder, or a role to run in a
            container has no image.
    """
    require_roles(app)
    for role in app.roles:
        check_file_name("role", role.name)
    if cfg.get("containers"):
        require_images(app, "`containers`")


def notes_of(app: AppDef, cfg: Mapping[str, CfgVal]) -> list[str]:
    """Returns a note for each feature of an application that Slurm does not support."""
    inside = in_containers(cfg)
    notes = []
    for note, roles in (
        (
            "mounts are not supported: replicas see the files of the nodes",
            [role for role in app.roles if role.mounts and not inside],
        ),
        (
            "only folders and files can be mounted into containers",
            [r for r in app.roles if inside and any(not isinstance(m, BindMount) for m in r.mounts)],
        ),
        (
            "devices are not requested: use sbatch options such as gres",
            [role for role in app.roles if role.resource.devices],
        ),
        (
            "min_replicas is not supported: all replicas start together",
            [role for role in app.roles if role.min_replicas not in (None, role.num_replicas)],
        ),
    ):
        if roles:
            notes.append(f"{note} (role {', '.join(role.name for role in roles)})")
    options = {*sbatch_options(cfg), *(name for role in app.roles for name in role_options(role, cfg))}
    if unknown := ", ".join(sorted(unknown_options(options))):
        notes.append(f"passed to sbatch, but not known to torchx: {unknown}")
    return notes


def check_tasks(header: str) -> None:
    """Checks that no node gets more tasks than Slurm starts on one, which it does not check itself.

    With ``overcommit``, Slurm accepts such a job, allocates as few nodes as are requested, and then rejects
    the step.

    Args:
        header: the #SBATCH lines of a job.

    Raises:
        UsageError: a node gets more tasks.
    """
    for part in header.split("#SBATCH hetjob\n"):
        options = dict(_OPTION.findall(part))
        tasks, nodes = first_number(options.get("ntasks")), first_number(options.get("nodes"))
        if "overcommit" not in options or "nodelist" in options or "ntasks-per-node" in options:
            continue
        if tasks <= (most := _most_tasks()) * nodes:
            continue
        on = f"{nodes} {'node' if nodes == 1 else 'nodes'}"
        raise UsageError(
            f"overcommit: {tasks:,} replicas on {on}, but Slurm starts at most {most} on each",
            hint=f"use more nodes: -cfg nodes={math.ceil(tasks / most)}",
        )


def check_nodes(header: str) -> None:
    """Checks that the partitions of several roles have enough nodes, which Slurm does not check itself.

    Args:
        header: the #SBATCH lines of a job.

    Raises:
        UsageError: they have fewer nodes, so that the job would wait for ever.
    """
    parts = [dict(_OPTION.findall(part)) for part in header.split("#SBATCH hetjob\n")]
    if len(parts) == 1:
        return
    nodes = _nodes_of_partitions()
    default = os.environ.get("SBATCH_PARTITION") or next((name for name in nodes if name.endswith("*")), "")
    needed: Counter[str] = Counter()
    for options in parts:
        needed[options.get("partition") or default] += first_number(options.get("nodes"))
    for names, count in needed.items():
        found = [nodes.get(name, nodes.get(f"{name}*")) for name in names.split(",")]
        known = {node for each in found for node in each or ()}
        if all(found) and count > len(known):
            raise UsageError(
                f"the roles need {count} nodes of partition `{names.rstrip('*')}`, which has {len(known)}: "
                "Slurm starts each role on nodes of its own",
                hint="use a larger partition: -cfg partition=…; list partitions: sinfo -s",
            )


def _nodes_of_partitions() -> dict[str, set[str]]:
    """Returns the nodes of each partition; the name of the default one ends in ``*``."""
    try:
        output = client.call(["sinfo", "--all", "--noheader", "--format=%P|%N"])
    except StateError:
        return {}
    nodes: dict[str, set[str]] = {}
    for name, _, hosts in (line.partition("|") for line in output.splitlines()):
        nodes.setdefault(name, set()).update(hosts_of(hosts.strip()))
    return nodes


def _most_tasks() -> int:
    """Returns the maximum of tasks on one node in the cluster's configuration."""
    try:
        match = _MAX_TASKS.search(client.call(["scontrol", "show", "config"]))
    except StateError:
        match = None
    return int(match[1]) if match else TASKS_PER_NODE
