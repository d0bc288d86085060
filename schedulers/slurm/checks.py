"""Checks of an application for Slurm: errors, and notes on unsupported features."""

from __future__ import annotations

import math
import os
import re
from collections import Counter

from torchx.errors import UsageError
from torchx.jobs.paths import check_file_name
from torchx.printable import counted
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.directives import first_number, in_containers, role_options
from torchx.schedulers.slurm.options import sbatch_options, unknown_options
from torchx.schedulers.slurm.parse import hosts_of
from torchx.scheduling.checks import require_images
from torchx.specs.app import AppDef
from torchx.specs.checks import require_roles
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import RunOptions

TASKS_PER_NODE = 512
"""Slurm's default maximum of the tasks of a step on one node, its parameter MaxTasksPerNode."""
_OPTION = r"(?m)^#SBATCH --([a-z-]+)(?:=(\S+))?$"
_MAX_TASKS = r"(?m)^MaxTasksPerNode\s*=\s*([1-9][0-9]{0,8})\s*$"


def check(app: AppDef, cfg: RunOptions) -> None:
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


def notes_of(app: AppDef, cfg: RunOptions) -> list[str]:
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
    return notes + _notes_of_options(app, cfg)


def _notes_of_options(app: AppDef, cfg: RunOptions) -> list[str]:
    """Returns a note on the options of sbatch that torchx does not know."""
    names = {*sbatch_options(cfg), *(name for role in app.roles for name in role_options(role, cfg))}
    unknown = ", ".join(sorted(unknown_options(names)))
    return [f"passed to sbatch, but not known to torchx: {unknown}"] * bool(unknown)


def _parts(header: str) -> list[dict[str, str]]:
    """Returns the options of each role in the #SBATCH lines of a job."""
    return [dict(re.findall(_OPTION, part)) for part in header.split("#SBATCH hetjob\n")]


def check_tasks(header: str) -> None:
    """Checks that no node gets more tasks than Slurm starts on one, which it does not check itself.

    With ``overcommit``, Slurm accepts such a job, allocates as few nodes as are requested, and then rejects
    the step.

    Args:
        header: the #SBATCH lines of a job.

    Raises:
        UsageError: a node gets more tasks.
    """
    for options in _parts(header):
        tasks, nodes = first_number(options.get("ntasks")), first_number(options.get("nodes"))
        if "overcommit" not in options or "nodelist" in options or "ntasks-per-node" in options:
            continue
        if tasks <= (most := _most_tasks()) * nodes:
            continue
        raise UsageError(
            f"overcommit: {tasks:,} replicas on {counted(nodes, 'node')}, "
            f"but Slurm starts at most {most} on each",
            hint=f"use more nodes: -cfg nodes={math.ceil(tasks / most)}",
        )


def check_nodes(header: str) -> None:
    """Checks that the partitions of several roles have enough nodes, which Slurm does not check itself.

    Args:
        header: the #SBATCH lines of a job.

    Raises:
        UsageError: they have fewer nodes, so that the job would wait for ever.
    """
    parts = _parts(header)
    if len(parts) == 1:
        return
    nodes: dict[str, set[str]] = {}
    default = os.environ.get("SBATCH_PARTITION") or ""
    for line in client.answer(["sinfo", "--all", "--noheader", "--format=%P|%N"]).splitlines():
        name, _, hosts = line.strip().partition("|")
        if name.endswith("*"):
            default = default or name[:-1]
        nodes.setdefault(name.rstrip("*"), set()).update(hosts_of(hosts))
    needed: Counter[str] = Counter()
    for options in parts:
        needed[options.get("partition") or default] += first_number(options.get("nodes"))
    for name, count in needed.items():
        if name in nodes and count > len(nodes[name]):
            raise UsageError(
                f"the roles need {count} nodes of partition `{name}`, which has {len(nodes[name])}: "
                "Slurm starts each role on nodes of its own",
                hint="use a larger partition: -cfg partition=…; list partitions: sinfo -s",
            )


def _most_tasks() -> int:
    """Returns the maximum of tasks on one node in the cluster's configuration."""
    match = re.search(_MAX_TASKS, client.answer(["scontrol", "show", "config"]))
    if match:
        return int(match[1])
    return TASKS_PER_NODE
