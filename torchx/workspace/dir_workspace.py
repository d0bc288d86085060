"""Workspaces as folders, for schedulers whose jobs can read local files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.machine import trees
from torchx.machine.files import expanded
from torchx.workspace.api import WorkspaceMixin

with lazy_imports:
    from torchx.specs import run_options
    from torchx.specs import workspace as specs_workspace
    from torchx.workspace import options, tree

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import RunOptions
    from torchx.specs.workspace import Workspace


class DirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies workspaces into the folder given by the run option ``job_dir``, which must not exist."""

    def workspace_opts(self) -> run_options.runopts:
        """Returns the run options that workspaces add to the scheduler's."""
        opts = run_options.runopts()
        opts.add("job_dir", str, "copy the workspace to this folder (default: no copy)")
        options.add_limit(opts)
        return opts

    def build_workspaces(self, roles: Iterable[Role], cfg: RunOptions) -> None:
        """Copies the workspaces of all roles into one folder; later files override earlier ones."""
        self._created: Path | None = None
        super().build_workspaces(roles, cfg)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: RunOptions
    ) -> None:
        """Copies a workspace, and sets ``role.image`` to the folder.

        Raises:
            UsageError: the folder already exists, or the workspace does not exist or is too large.
            StateError: the workspace cannot be copied.
        """
        job_dir = cfg.get("job_dir")
        if job_dir:
            folder = expanded(str(job_dir)).absolute()
            if folder.exists() and folder != getattr(self, "_created", None):
                raise UsageError(f"job_dir {folder} already exists; each job needs a new one")
            self._created = folder
            _copy(workspace, folder, cfg)
            role.image = str(folder)

    def dryrun_push_images(self, app: AppDef, cfg: RunOptions) -> None:
        """Does nothing, as folders are not pushed."""

    def push_images(self, images_to_push: None) -> None:
        """Does nothing, as folders are not pushed."""


class TmpDirWorkspaceMixin(DirWorkspaceMixin):
    """Copies workspaces into new temporary folders."""

    def workspace_opts(self) -> run_options.runopts:
        """Returns the run options that workspaces add to the scheduler's."""
        opts = run_options.runopts()
        options.add_limit(opts)
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: RunOptions
    ) -> None:
        """Copies a workspace, and sets ``role.image`` to the folder."""
        folder = Path(tempfile.mkdtemp(prefix="torchx_workspace"))
        try:
            _copy(workspace, folder, cfg)
        except BaseException:
            trees.discard(folder)
            raise
        role.image = str(folder)


def _copy(workspace: str | specs_workspace.Workspace, folder: Path, cfg: RunOptions) -> None:
    parsed = specs_workspace.Workspace.from_str(workspace)
    tree.scan(parsed, options.limit_of(cfg)).write_to(folder, into_existing=folder.exists())
