"""Workspaces on Slurm: a copy in a shared folder, or an image."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchx.errors import StateError, UsageError
from torchx.schedulers.slurm.directives import in_containers
from torchx.schedulers.slurm.options import check_options
from torchx.schedulers.slurm.request import SlurmRequest, base_folder
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal


def plan_workspaces(app: AppDef, cfg: Mapping[str, CfgVal]) -> list[str]:
    """Plans the copies or images of the workspaces and stores the plans in the roles; only reads files.

    Raises:
        UsageError: a workspace is missing or too large, or an image is requested but not used.
    """
    from torchx.workspace.tree import scan_workspaces

    check_options(cfg)
    limit = cfg.get("workspace_limit_mb")
    notes: dict[str, None] = {}
    for role, scanned in scan_workspaces(app.roles, limit if isinstance(limit, int) else None):
        notes.update(dict.fromkeys(scanned.tree.notes))
        if cfg.get("workspace_type") == "docker":
            if not in_containers(cfg):
                raise UsageError("workspace_type=docker needs containers=true to run the image")
            if not cfg.get("image_repo"):
                raise UsageError(
                    "workspace_type=docker needs image_repo, from which the nodes pull the image"
                )
            from torchx.schedulers.docker.images.workspace import plan_image

            scanned.plan = plan = plan_image(role, scanned.tree, cfg)
            role.image = plan.name
            notes[plan.why] = None
        else:
            scanned.plan = str(base_folder(cfg) / "workspaces" / scanned.tree.digest[:24])
    return list(notes)


def roots_of(app: AppDef) -> dict[str, str]:
    """Returns the folders of the roles that start in a copy of their workspace."""
    plans = ((role.name, getattr(role.workspace, "plan", None)) for role in app.roles)
    return {name: plan for name, plan in plans if isinstance(plan, str)}


def provide(
    request: SlurmRequest, app: AppDef, report: Callable[[str], None]
) -> tuple[SlurmRequest, list[str]]:
    """Creates missing copies and images of the workspaces.

    Returns:
        The request with the names of pushed images, and notes.

    Raises:
        StateError: a copy cannot be created, or an image cannot be built or pushed.
    """
    images: dict[str, str] = {}
    notes: list[str] = []
    for role in app.roles:
        plan: Any = getattr(role.workspace, "plan", None)
        if isinstance(plan, str):
            copy(role.workspace.tree, Path(plan), report)  # type: ignore[union-attr]
        elif plan is not None and plan.name not in images:
            from torchx.schedulers.docker.engine.client import Engine
            from torchx.schedulers.docker.images.workspace import provide_image

            images[plan.name], more = provide_image(Engine(), plan, report)
            notes += more
    for planned, image in images.items():
        request = replace(
            request, script=request.script.replace(_plugin_image(planned), _plugin_image(image))
        )
    return request, notes


def _plugin_image(image: str) -> str:
    from torchx.schedulers.slurm.directives import plugin_image_name

    return plugin_image_name(image)


def copy(tree: Any, folder: Path, report: Callable[[str], None]) -> None:
    """Copies a tree atomically, unless a copy with the same content exists.

    Raises:
        StateError: the copy cannot be created.
    """
    if folder.is_dir():
        return
    report(f"copying the workspace: {tree.files} files")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        tree.write_to(part)
        with contextlib.suppress(FileExistsError):
            try:
                part.rename(folder)
            except OSError:
                if not folder.is_dir():  # another process was faster
                    raise
    except OSError as error:
        raise StateError(f"cannot copy the workspace to {folder}: {error.strerror}") from error
    finally:
        if part.exists():
            shutil.rmtree(part, ignore_errors=True)
