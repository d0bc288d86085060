"""Workspaces: folders copied to a job. Documented names: those of :mod:`torchx.workspace.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx.workspace.api import MultiWorkspaceMixin as MultiWorkspaceMixin
    from torchx.workspace.api import WorkspaceMixin as WorkspaceMixin
    from torchx.workspace.api import pin_workspace_images as pin_workspace_images
    from torchx.workspace.api import walk_workspace as walk_workspace

__all__ = ["MultiWorkspaceMixin", "WorkspaceMixin", "pin_workspace_images", "walk_workspace"]


def __getattr__(name: str) -> Any:
    # on demand: copying a tree does not need the plugin API
    if name not in (*__all__, "PkgInfo", "WorkspaceBuilder"):
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from torchx.workspace import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
