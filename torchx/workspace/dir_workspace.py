"""Workspaces as folders, for schedulers whose jobs see the files of this machine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role
    from torchx.specs.run_options import CfgVal, runopts
    from torchx.specs.workspace import Workspace


class DirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies workspaces into the folder that the run option ``job_dir`` names, which has to be a new one."""

    def workspace_opts(self) -> runopts:
        """Returns the run options that workspaces add to those of the scheduler."""
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add("job_dir", type_=str, help="folder that the workspace is copied to; nothing is, unless told")
        opts.add("workspace_limit_mb", type_=int, default=1024, help="MB that a workspace may have")
        return opts

    def build_workspaces(self, roles: Iterable[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Copies the workspaces of all roles into the one folder; later files win over earlier ones."""
        self._began: Path | None = None
        super().build_workspaces(roles, cfg)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies a workspace, and sets ``role.image`` to the folder.

        Raises:
            UsageError: the folder is there already, or the workspace is not there or too large.
            StateError: it cannot be copied.
        """
        job_dir = cfg.get("job_dir")
        if job_dir:
            folder = Path(str(job_dir)).expanduser().absolute()
            if folder.exists() and folder != getattr(self, "_began", None):
                raise UsageError(f"job_dir {folder} is there already: each job has a new one")
            self._began = folder
            _copy(workspace, folder, cfg)
            role.image = str(folder)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> None:
        """Names nothing: folders are not pushed."""

    def push_images(self, images_to_push: None) -> None:
        """Pushes nothing."""


class TmpDirWorkspaceMixin(DirWorkspaceMixin):
    """Copies workspaces into new folders among this machine's temporary files."""

    def workspace_opts(self) -> runopts:
        """Returns the run options that workspaces add to those of the scheduler."""
        from torchx.specs.run_options import runopts

        opts = runopts()
        opts.add("workspace_limit_mb", type_=int, default=1024, help="MB that a workspace may have")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies a workspace, and sets ``role.image`` to the folder."""
        folder = Path(tempfile.mkdtemp(prefix="torchx_workspace"))
        try:
            _copy(workspace, folder, cfg)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        role.image = str(folder)


def _copy(workspace: str | Workspace, folder: Path, cfg: Mapping[str, CfgVal]) -> None:
    from torchx.specs.workspace import Workspace
    from torchx.workspace.tree import scan

    given = Workspace.from_str(workspace) if isinstance(workspace, str) else workspace
    limit = cfg.get("workspace_limit_mb")
    scan(given, limit if isinstance(limit, int) else None).write_to(folder, into_existing=folder.exists())
