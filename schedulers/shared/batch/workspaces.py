"""Workspaces of batch jobs: copies in a shared folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import StateError
from torchx.jobs.paths import user_home
from torchx.lazy import lazy_imports
from torchx.machine import trees
from torchx.machine.files import expanded, make_folder, move_folder
from torchx.printable import counted
from torchx.schedulers.shared.batch.filesystems import LOCAL, existing_parent, type_of
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.workspace import tree as workspace_tree

if TYPE_CHECKING:
    from torchx.workspace.tree import Tree


WORKSPACES = "workspaces"
"""The name of the folder of copies, beside that of jobs."""


class WorkspaceCopy(NamedTuple):
    """A copy of a workspace in a folder shared with all nodes.

    Attributes:
        folder: the folder; it is named after the content, so that equal workspaces share a copy.
        tree: the files.
        fallback: a second copy in the state home, for nodes that may not share the first; empty without.
    """

    folder: str
    tree: Tree
    fallback: str = ""


def base_folder(engine: str, cfg: RunOptions) -> Path:
    """Returns the folder shared with all nodes: ``job_dir``, or that of the engine in the state home."""
    job_dir = cfg.get("job_dir")
    if job_dir:
        return expanded(str(job_dir)).absolute()
    return user_home() / engine


def fallback_folder(engine: str, cfg: RunOptions) -> Path | None:
    """Returns the folder for a job whose nodes do not share its ``job_dir``; None if that is the same."""
    default = user_home() / engine
    if base_folder(engine, cfg).resolve() == default.resolve():
        return None
    return default


def _plan_copy(engine: str, cfg: RunOptions, tree: Tree) -> WorkspaceCopy:
    """Returns the copy of a workspace; there is a second one if the first is on a disk of this machine."""
    base, fallback, name = base_folder(engine, cfg), fallback_folder(engine, cfg), tree.digest[:24]
    second = ""
    if fallback is not None and type_of(existing_parent(base)) in LOCAL:
        second = str(fallback / WORKSPACES / name)
    return WorkspaceCopy(str(base / WORKSPACES / name), tree, second)


def plan_workspaces(
    engine: str, app: AppDef, cfg: RunOptions, plan_image: Callable[[Role, Tree], str] | None = None
) -> tuple[dict[str, WorkspaceCopy], list[str]]:
    """Plans the copies of the workspaces; only reads files.

    Args:
        engine: the name of the engine.
        app: the application.
        cfg: run options.
        plan_image: plans an image for a role instead, and returns a note (default: only copies).

    Returns:
        The copies by role, and notes, one line each.

    Raises:
        UsageError: a workspace is missing or too large.
    """
    if not any(role.workspace for role in app.roles):
        return {}, []
    copies: dict[str, WorkspaceCopy] = {}
    notes: dict[str, None] = {}
    scanned = workspace_tree.scan_workspaces(app.roles, cfg)
    for role, tree in scanned:
        notes.update(dict.fromkeys(tree.notes))
        if plan_image is None:
            copies[role.name] = _plan_copy(engine, cfg, tree)
        else:
            notes[plan_image(role, tree)] = None
    notes.update(dict.fromkeys(line for _, tree in scanned for line in tree.vanished))
    return copies, list(notes)


def copy(tree: Tree, folder: Path, report: Callable[[str], None]) -> None:
    """Copies a tree atomically, unless a copy with the same content exists.

    Raises:
        StateError: the copy cannot be created.
    """
    if folder.is_dir():
        return
    report(f"copying the workspace: {counted(tree.files, 'file')}")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        make_folder(folder.parent)
        tree.write_to(part)
        move_folder(part, folder)
    except OSError as error:
        raise StateError(f"cannot copy the workspace to {folder}: {error.strerror}") from error
    finally:
        trees.discard(part)
