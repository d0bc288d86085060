"""The request for a Slurm job: a script, created without calling Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.schedulers.ids import make_unique, random_id
from torchx.schedulers.slurm.checks import notes_of
from torchx.schedulers.slurm.folders.marks import Mark
from torchx.schedulers.slurm.node.job_limits import notes_of_limits
from torchx.schedulers.slurm.script import ScriptContext, files_of, script_by_hand, script_of
from torchx.schedulers.slurm.workspaces import WorkspaceCopy, base_folder, fallback_folder, plan_workspaces
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.run_options import RunOptions

if TYPE_CHECKING:
    from torchx.schedulers.docker.image_plan import ImagePlan

LONGEST_NAME = 120


@dataclass
class SlurmRequest:
    """A job to submit.

    Attributes:
        name: the name of the job.
        token: distinguishes it from other jobs with the same id.
        folder: the folder of its logs, script and record.
        script: the script for sbatch.
        files: the files that it reads, with the arguments and the environment of the roles, by their paths in
            the folder.
        cmd: the sbatch command.
        copies: the copy of the workspace that a role starts in, by role.
        builds: the images to build for the other workspaces.
        fallback: a folder with the same files, for nodes that do not share the first one; empty without.
    """

    name: str
    token: str
    folder: str
    script: str
    files: dict[str, str] = field(default_factory=dict)
    cmd: tuple[str, ...] = ("sbatch", "--parsable")
    copies: dict[str, WorkspaceCopy] = field(default_factory=dict)
    builds: list[ImagePlan] = field(default_factory=list)
    fallback: str = ""

    @property
    def folders(self) -> list[Path]:
        """The folders for the files of the job."""
        return [Path(folder) for folder in (self.folder, self.fallback) if folder]


def dry_run(app: AppDef, cfg: RunOptions, session: str) -> AppDryRunInfo[SlurmRequest]:
    """Returns the request for an application, with notes; has no side effects."""
    copies, builds, notes = plan_workspaces(app, cfg)
    info = AppDryRunInfo(to_request(app, cfg, session, copies, builds), as_text, as_brief)
    info.notes += notes + notes_of(app, cfg) + notes_of_limits(cfg)
    return info


def to_request(
    app: AppDef,
    cfg: RunOptions,
    session: str,
    copies: Mapping[str, WorkspaceCopy],
    builds: Iterable[ImagePlan] = (),
    token: str = "",
) -> SlurmRequest:
    """Returns the request for an application; has no side effects.

    Args:
        app: the application; not modified.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        copies: the copies of workspaces, by role.
        builds: the images to build for workspaces.
        token: distinguishes the job from others (default: a random one).

    Raises:
        UsageError: the application is not supported on Slurm.
    """
    token = token or random_id()
    context = context_of(app, cfg, session, copies, token)
    script, files = script_of(app, cfg, context), files_of(app, cfg, context)
    return SlurmRequest(
        context.name,
        token,
        context.folder,
        script,
        files,
        copies=dict(copies),
        builds=list(builds),
        fallback=context.fallback,
    )


def context_of(
    app: AppDef, cfg: RunOptions, session: str, copies: Mapping[str, WorkspaceCopy], token: str
) -> ScriptContext:
    """Returns the job that a script is generated for.

    Args:
        app: the application.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        copies: the copies of workspaces, by role.
        token: distinguishes the job from others.
    """
    readable = make_unique(app.name).rpartition("-")[0][:LONGEST_NAME].strip("-.")
    name = f"{readable or 'app'}-{token}"
    folder, other = base_folder(cfg) / "jobs" / name, fallback_folder(cfg)
    fallback = None
    if other is not None:
        fallback = other / "jobs" / name
    mark = str(Mark(token, folder, fallback))
    roots = {role: copy.folder for role, copy in copies.items()}
    return ScriptContext(name, str(folder), session, mark, roots, str(fallback or ""))


def as_text(request: SlurmRequest) -> str:
    """Returns a script that can be passed to sbatch by hand, with all files."""
    return script_by_hand(request.script, request.files)


def as_brief(request: SlurmRequest) -> str:
    """Returns the script, with the names of the files that it reads."""
    names = [f"#   {name}" for name in sorted(request.files)]
    return "\n".join(
        [request.script, "# It reads these files; torchx run --dryrun=full shows them:", *names, ""]
    )
