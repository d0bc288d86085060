"""What is sent to Slurm: a script, made without any Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from torchx.errors import UsageError
from torchx.jobs.paths import user_home
from torchx.schedulers.ids import make_unique, random_id
from torchx.schedulers.slurm.directives import in_containers
from torchx.schedulers.slurm.options import check_options
from torchx.schedulers.slurm.script import Place, script_of
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal

MARK = "torchx:"
"""Begins the mark in a job's comment: its token, and the folder of its logs."""
LONGEST_NAME = 120


@dataclass
class SlurmRequest:
    """One job.

    Attributes:
        name: the name of the job; its id is Slurm's to give.
        token: tells it from a job that had or will have the same id.
        folder: of its logs, its script and its record.
        script: what sbatch is given.
        cmd: how sbatch is called.
    """

    name: str
    token: str
    folder: str
    script: str
    cmd: tuple[str, ...] = ("sbatch", "--parsable")


def base_folder(cfg: Mapping[str, CfgVal]) -> Path:
    """Returns the folder that all nodes have to see: ``job_dir``, or ``slurm`` in the state home."""
    told = cfg.get("job_dir")
    return Path(str(told)).expanduser().absolute() if told else user_home() / "slurm"


def to_request(
    app: AppDef, cfg: Mapping[str, CfgVal], session: str, roots: Mapping[str, str]
) -> SlurmRequest:
    """Returns the request for an application; touches nothing.

    Args:
        app: the application; left as it is.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        roots: the folder of each role's workspace.

    Raises:
        UsageError: the application asks for what Slurm cannot give.
    """
    token = random_id()
    readable = make_unique(app.name).rpartition("-")[0][:LONGEST_NAME].strip("-.")
    name = f"{readable or 'app'}-{token}"
    folder = str(base_folder(cfg) / "jobs" / name)
    mark = f"{MARK}{token}:{quote(folder)}"
    script = script_of(app, cfg, Place(name, folder, session, mark, roots))
    return SlurmRequest(name, token, folder, script)


def as_text(request: SlurmRequest) -> str:
    """Returns the script, which sbatch takes as it is."""
    return request.script


def check(app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
    """Refuses an application or run options that Slurm cannot take.

    Raises:
        UsageError: one cannot be right.
    """
    check_options(cfg)
    if not app.roles:
        raise UsageError(f"application `{app.name}` has no roles, so there is nothing to run")
    for role in app.roles:
        if cfg.get("containers") and not role.image:
            raise UsageError(f"role `{role.name}` has no image, and `containers` needs one")


def notes_of(app: AppDef, cfg: Mapping[str, CfgVal]) -> list[str]:
    """Returns what of an application Slurm does not honour, a line each."""
    inside = in_containers(cfg)
    notes = []
    for what, roles in (
        (
            "mounts are not made: replicas see the files of the nodes",
            [role for role in app.roles if role.mounts and not inside],
        ),
        (
            "only folders and files can be mounted into containers here",
            [r for r in app.roles if inside and any(not isinstance(m, BindMount) for m in r.mounts)],
        ),
        (
            "devices are asked for by sbatch's own options, as gres",
            [role for role in app.roles if role.resource.devices],
        ),
        (
            "min_replicas means nothing to Slurm: a job starts as a whole",
            [role for role in app.roles if role.min_replicas not in (None, role.num_replicas)],
        ),
    ):
        if roles:
            notes.append(f"{what} (role {', '.join(role.name for role in roles)})")
    whole = {r.max_retries for r in app.roles if r.retry_policy is RetryPolicy.APPLICATION}
    if len(whole) > 1:
        notes.append(f"the job is started again {min(whole)} times as a whole: as often as each role may be")
    return notes
