"""The request for a Slurm job: a script, created without calling Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from torchx.errors import UsageError
from torchx.jobs.paths import user_home
from torchx.schedulers.ids import make_unique, random_id
from torchx.schedulers.slurm.directives import in_containers
from torchx.schedulers.slurm.options import check_options
from torchx.schedulers.slurm.script import ScriptContext, script_of
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal

if TYPE_CHECKING:
    from torchx.schedulers.docker.images.plan import ImagePlan
    from torchx.workspace.tree import Tree

MARK = "torchx:"
"""Prefix of the mark in a job's comment, which contains its token and the folder of its logs."""
LONGEST_NAME = 120


class WorkspaceCopy(NamedTuple):
    """A copy of a workspace in a folder shared with all nodes.

    Attributes:
        folder: the folder; it is named after the content, so that equal workspaces share a copy.
        tree: the files.
    """

    folder: str
    tree: Tree


@dataclass
class SlurmRequest:
    """A job to submit.

    Attributes:
        name: the name of the job.
        token: distinguishes it from other jobs with the same id.
        folder: the folder of its logs, script and record.
        script: the script for sbatch.
        cmd: the sbatch command.
        copies: the copy of the workspace that a role starts in, by role.
        builds: the images to build for the other workspaces.
    """

    name: str
    token: str
    folder: str
    script: str
    cmd: tuple[str, ...] = ("sbatch", "--parsable")
    copies: dict[str, WorkspaceCopy] = field(default_factory=dict)
    builds: list[ImagePlan] = field(default_factory=list)


def base_folder(cfg: Mapping[str, CfgVal]) -> Path:
    """Returns the folder shared with all nodes: ``job_dir``, or ``slurm`` in the state home."""
    job_dir = cfg.get("job_dir")
    return Path(str(job_dir)).expanduser().absolute() if job_dir else user_home() / "slurm"


def to_request(
    app: AppDef,
    cfg: Mapping[str, CfgVal],
    session: str,
    copies: Mapping[str, WorkspaceCopy],
    builds: Iterable[ImagePlan] = (),
) -> SlurmRequest:
    """Returns the request for an application; has no side effects.

    Args:
        app: the application; not modified.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        copies: the copies of workspaces, by role.
        builds: the images to build for workspaces.

    Raises:
        UsageError: the application is not supported on Slurm.
    """
    token = random_id()
    readable = make_unique(app.name).rpartition("-")[0][:LONGEST_NAME].strip("-.")
    name = f"{readable or 'app'}-{token}"
    folder = str(base_folder(cfg) / "jobs" / name)
    mark = f"{MARK}{token}:{quote(folder)}"
    roots = {role: copy.folder for role, copy in copies.items()}
    script = script_of(app, cfg, ScriptContext(name, folder, session, mark, roots))
    return SlurmRequest(name, token, folder, script, copies=dict(copies), builds=list(builds))


def as_text(request: SlurmRequest) -> str:
    """Returns the script of a request."""
    return request.script


def check(app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
    """Checks an application and its run options.

    Raises:
        UsageError: the application or an option is invalid.
    """
    check_options(cfg)
    if not app.roles:
        raise UsageError(f"application `{app.name}` has no roles, so there is nothing to run")
    for role in app.roles:
        if cfg.get("containers") and not role.image:
            raise UsageError(f"role `{role.name}` has no image, and `containers` needs one")


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
    whole = {r.max_retries for r in app.roles if r.retry_policy is RetryPolicy.APPLICATION}
    if len(whole) > 1:
        notes.append(f"the job is retried at most {min(whole)} times, the minimum of its roles")
    return notes
