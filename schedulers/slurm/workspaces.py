"""Workspaces on Slurm: a copy in a folder that all nodes see, or an image."""

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
    """Decides how the workspaces of an application travel, and notes it in its roles; reads files, no more.

    Raises:
        UsageError: a workspace is too large or not there, or an image is asked for that nobody would run.
    """
    from torchx.workspace.tree import look_at_all

    check_options(cfg)
    limit = cfg.get("workspace_limit_mb")
    notes: dict[str, None] = {}
    for role, scanned in look_at_all(app.roles, limit if isinstance(limit, int) else None):
        notes.update(dict.fromkeys(scanned.tree.notes))
        if cfg.get("workspace_type") == "docker":
            if not in_containers(cfg):
                raise UsageError("workspace_type=docker makes an image, and needs containers=true to run it")
            if not cfg.get("image_repo"):
                raise UsageError("workspace_type=docker needs image_repo: the nodes get the image from there")
            from torchx.schedulers.docker.images.workspace import plan_image

            scanned.plan = plan = plan_image(role, scanned.tree, cfg)
            role.image = plan.name
            notes[plan.why] = None
        else:
            scanned.plan = str(base_folder(cfg) / "workspaces" / scanned.tree.digest[:24])
    return list(notes)


def roots_of(app: AppDef) -> dict[str, str]:
    """Returns the folder of each role that starts in a copy of its workspace."""
    found = ((role.name, getattr(role.workspace, "plan", None)) for role in app.roles)
    return {name: plan for name, plan in found if isinstance(plan, str)}


def provide(
    request: SlurmRequest, app: AppDef, tell: Callable[[str], None]
) -> tuple[SlurmRequest, list[str]]:
    """Makes what the roles need: copies that are not there yet, images that the engine or registry lacks.

    Returns:
        The request with the images as they are called once they are pushed, and what there is to say.

    Raises:
        StateError: a copy cannot be made, or an image not be built or pushed.
    """
    images: dict[str, str] = {}
    notes: list[str] = []
    for role in app.roles:
        plan: Any = getattr(role.workspace, "plan", None)
        if isinstance(plan, str):
            copy(role.workspace.tree, Path(plan), tell)  # type: ignore[union-attr]
        elif plan is not None and plan.name not in images:
            from torchx.schedulers.docker.engine.client import Engine
            from torchx.schedulers.docker.images.workspace import provide_image

            images[plan.name], more = provide_image(Engine(), plan, tell)
            notes += more
    for planned, image in images.items():
        request = replace(request, script=request.script.replace(_as_plugin(planned), _as_plugin(image)))
    return request, notes


def _as_plugin(image: str) -> str:
    from torchx.schedulers.slurm.directives import image_word

    return image_word(image)


def copy(tree: Any, folder: Path, tell: Callable[[str], None]) -> None:
    """Copies a tree, unless a job with the same content has done so; a copy is there whole or not at all.

    Raises:
        StateError: it cannot be made.
    """
    if folder.is_dir():
        return
    tell(f"copying the workspace: {tree.files} files")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        tree.write_to(part)
        with contextlib.suppress(FileExistsError):
            try:
                part.rename(folder)
            except OSError:
                if not folder.is_dir():  # somebody else was quicker
                    raise
    except OSError as error:
        raise StateError(f"the workspace cannot be copied to {folder}: {error.strerror}") from error
    finally:
        if part.exists():
            shutil.rmtree(part, ignore_errors=True)
