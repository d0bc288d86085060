"""The request for a batch job: a script, created without calling the batch system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchx.schedulers.ids import make_unique
from torchx.schedulers.shared.batch.marks import Mark
from torchx.schedulers.shared.batch.script import Dialect, ScriptContext, script_by_hand
from torchx.schedulers.shared.batch.workspaces import WorkspaceCopy, base_folder, fallback_folder
from torchx.specs.app import AppDef
from torchx.specs.run_options import RunOptions

LONGEST_NAME = 120


@dataclass
class BatchRequest:
    """A job to submit.

    Attributes:
        name: the name of the job.
        token: distinguishes it from other jobs with the same id.
        folder: the folder of its logs, script and record.
        script: the script to submit.
        files: the files that it reads, with the arguments and the environment of the roles, by their paths in
            the folder.
        cmd: the command that submits it.
        copies: the copy of the workspace that a role starts in, by role.
        fallback: a folder with the same files, for nodes that do not share the first one; empty without.
    """

    name: str
    token: str
    folder: str
    script: str
    files: dict[str, str] = field(default_factory=dict)
    cmd: tuple[str, ...] = ()
    copies: dict[str, WorkspaceCopy] = field(default_factory=dict)
    fallback: str = ""

    @property
    def folders(self) -> list[Path]:
        """The folders for the files of the job."""
        return [Path(folder) for folder in (self.folder, self.fallback) if folder]


def context_of(
    dialect: Dialect,
    app: AppDef,
    cfg: RunOptions,
    session: str,
    copies: Mapping[str, WorkspaceCopy],
    token: str,
) -> ScriptContext:
    """Returns the job that a script is generated for.

    Args:
        dialect: the parts of a script that belong to its batch system.
        app: the application.
        cfg: run options, with their defaults.
        session: the session part of its handle.
        copies: the copies of workspaces, by role.
        token: distinguishes the job from others.
    """
    readable = make_unique(app.name).rpartition("-")[0][:LONGEST_NAME].strip("-.")
    name = f"{readable or 'app'}-{token}"
    folder, other = base_folder(dialect.engine, cfg) / "jobs" / name, fallback_folder(dialect.engine, cfg)
    fallback = None
    if other is not None:
        fallback = other / "jobs" / name
    mark = str(Mark(token, folder, fallback))
    roots = {role: copy.folder for role, copy in copies.items()}
    return ScriptContext(dialect, name, str(folder), session, mark, roots, str(fallback or ""))


def as_text(request: BatchRequest) -> str:
    """Returns a script that can be submitted by hand, with all files."""
    return script_by_hand(request.script, request.files)


def as_brief(request: BatchRequest) -> str:
    """Returns the script, with the names of the files that it reads."""
    names = [f"#   {name}" for name in sorted(request.files)]
    return "\n".join(
        [request.script, "# It reads these files; torchx run --dryrun=full shows them:", *names, ""]
    )
