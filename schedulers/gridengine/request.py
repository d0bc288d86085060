"""The request for a Grid Engine job: a script, created without calling Grid Engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import UsageError
from torchx.jobs.paths import check_file_name
from torchx.schedulers.gridengine.options import directives_of
from torchx.schedulers.ids import random_id
from torchx.schedulers.shared.batch.limits import JobLimits
from torchx.schedulers.shared.batch.marks import Mark
from torchx.schedulers.shared.batch.quoting import quote
from torchx.schedulers.shared.batch.request import BatchRequest, as_brief, as_text, context_of
from torchx.schedulers.shared.batch.script import Dialect, files_of, grace_of, script_of
from torchx.schedulers.shared.batch.services import ends_together
from torchx.schedulers.shared.batch.workspaces import plan_workspaces
from torchx.scheduling.limits import NODE, PREEMPTED, LimitRule
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.checks import require_roles
from torchx.specs.run_options import RunOptions

SPARE = 60
"""Seconds after the time limit and the grace period at which Grid Engine kills the job itself."""


@dataclass
class GridEngineRequest(BatchRequest):
    """A Grid Engine job to submit."""

    cmd: tuple[str, ...] = ("qsub", "-terse")


def check(app: AppDef) -> None:
    """Checks an application.

    Raises:
        UsageError: it has no roles, the name of a role is too long for a folder, or roles request different
            resources: Grid Engine gives all slots of a job the same ones.
    """
    require_roles(app)
    for role in app.roles:
        check_file_name("role", role.name)
    first = app.roles[0]
    for role in app.roles[1:]:
        if _shape(role) != _shape(first):
            raise UsageError(
                f"roles `{first.name}` and `{role.name}` request different resources, and Grid Engine gives "
                "all replicas of a job the same ones",
                hint="request the same cpu, gpu and memMB for all roles, or submit two applications",
            )


def _shape(role: Role) -> tuple[int, int, int]:
    return max(int(role.resource.cpu), 0), max(role.resource.gpu, 0), max(role.resource.memMB, 0)


def dry_run(app: AppDef, cfg: RunOptions, session: str) -> AppDryRunInfo[GridEngineRequest]:
    """Returns the request for an application, with notes; has no side effects.

    Raises:
        UsageError: the application is not supported on Grid Engine.
    """
    check(app)
    copies, notes = plan_workspaces(DIALECT.engine, app, cfg)
    token = random_id()
    context = context_of(DIALECT, app, cfg, session, copies, token)
    context = context._replace(mark=str(Mark(token, Path(context.folder))), fallback="")
    script, files = script_of(app, cfg, context), files_of(app, cfg, context)
    request = GridEngineRequest(
        job_name(context.name), token, context.folder, script, files, copies=dict(copies)
    )
    info = AppDryRunInfo(request, as_text, as_brief)
    info.notes += notes + notes_of(app, cfg)
    return info


def job_name(name: str) -> str:
    """Returns a name that Grid Engine accepts for a job: none begins with a digit.

    >>> job_name("7b-x1"), job_name("a-x1")
    ('_7b-x1', 'a-x1')
    """
    if name[0].isdigit():
        return f"_{name}"
    return name


def notes_of(app: AppDef, cfg: RunOptions) -> list[str]:
    """Returns a note for each feature of an application that Grid Engine does not support."""
    notes = []
    for note, roles in (
        ("mounts are not supported: replicas see the files of the hosts", [r for r in app.roles if r.mounts]),
        ("devices are not requested: use -cfg resources=…", [r for r in app.roles if r.resource.devices]),
        (
            "min_replicas is not supported: all replicas start together",
            [r for r in app.roles if r.min_replicas not in (None, r.num_replicas)],
        ),
    ):
        if roles:
            notes.append(f"{note} (role {', '.join(role.name for role in roles)})")
    memory = _shape(app.roles[0])[2]
    if memory and not cfg.get("memory_resource"):
        notes.append(f"memMB={memory} is not requested: set -cfg memory_resource=…, e.g. h_vmem")
    return notes


def limits_of(cfg: RunOptions) -> JobLimits:
    """Returns the limits of a job."""
    rule = LimitRule.of(cfg)
    by_engine = bool({PREEMPTED, NODE} & rule.requeue.keys())
    return JobLimits(int(rule.limit or 0), math.ceil(rule.notice), rule.signal, rule.requeues, by_engine)


def slots_of(app: AppDef, cfg: RunOptions) -> int:
    """Returns the slots of each replica."""
    return int(str(cfg.get("slots") or max(_shape(app.roles[0])[0], 1)))


def directives(app: AppDef, cfg: RunOptions, name: str, mark: str) -> Iterator[str]:
    """Yields the options of the job, and the variables for ``dialect.sh``.

    Args:
        app: the application.
        cfg: run options.
        name: the unique name of the job.
        mark: the mark in its context, which identifies it as a job of torchx.

    Raises:
        UsageError: an option is invalid, or the GPUs of a replica cannot be divided by its slots.
    """
    slots, replicas = slots_of(app, cfg), [role.num_replicas for role in app.roles]
    total, limits = slots * sum(replicas), limits_of(cfg)
    reruns = "n"
    if limits.by_engine or cfg.get("requeue"):
        reruns = "y"
    # qsub does not check -cwd and -o; no other user can read the log of the script
    yield f"#$ -N {job_name(name)} -S /bin/bash -cwd -o /dev/null -j y -notify -r {reruns}"
    yield f"#$ -ac torchx={mark.removeprefix('torchx:')}"
    if cfg.get("pe") or total > 1:
        yield f"#$ -pe {cfg.get('pe') or 'mpi'} {total}"
    if limits.limit:
        yield f"#$ -l h_rt={limits.limit + grace_of(cfg) + SPARE}"
    yield from (f"#$ -l {request}" for request in _requests(app.roles[0], cfg, slots))
    yield from (f"#$ {line}" for line in directives_of(cfg))
    yield f"slots={slots} replicas=({' '.join(map(str, replicas))})"


def _requests(role: Role, cfg: RunOptions, slots: int) -> Iterator[str]:
    """Yields the requests for memory and GPUs, which Grid Engine multiplies by the slots."""
    _, gpus, memory = _shape(role)
    if memory and cfg.get("memory_resource"):
        yield f"{cfg['memory_resource']}={math.ceil(memory / slots)}M"
    if gpus:
        if gpus % slots:
            raise UsageError(
                f"role `{role.name}` requests {gpus} GPUs on {slots} slots: Grid Engine counts them by slot",
                hint=f"set -cfg slots={math.gcd(gpus, slots)}",
            )
        yield f"{cfg.get('gpu_resource') or 'gpu'}={gpus // slots}"


def step_options(number: int, app: AppDef, cfg: RunOptions) -> str:
    """Returns the options of the shell function ``step`` for a role."""
    if ends_together(app.roles[number], cfg):
        return f"{number} yes"
    return f"{number} no"


DIALECT = Dialect(
    "gridengine",
    "torchx_replica=$TORCHX_TASK torchx_host=$TORCHX_HOST torchx_kills=yes; unset TORCHX_TASK TORCHX_HOST",
    directives,
    limits_of,
    step_options,
    files=("host.sh",),
)
"""The parts of a script that belong to Grid Engine."""


def environment_file(environment: dict[str, str]) -> str:
    """Returns a file for bash that sets the variables of this shell, unless the host sets its own ones.

    >>> print(environment_file({"PATH": "/a b", "X": "1", "a.b": "2"}), end="")
    export PATH='/a b'
    [ -n "${X+x}" ] || export X=1
    """
    lines = []
    for name, value in environment.items():
        if name == "PATH":
            lines.append(f"export PATH={quote(value)}\n")
        elif name.isidentifier() and name.isascii() and name not in _OF_HOST:
            lines.append(f'[ -n "${{{name}+x}}" ] || export {name}={quote(value)}\n')
    return "".join(lines)


_OF_HOST = ("PWD", "OLDPWD", "SHLVL", "HOSTNAME", "TMPDIR", "TMP", "TEMP", "_", "DISPLAY", "LC_ALL")
