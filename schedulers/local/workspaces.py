"""Plans the workspaces of local jobs: each job runs in its own copy, which is stored with its record."""

from __future__ import annotations

import os
from typing import NamedTuple

from torchx.jobs.paths import JobPaths, file_name
from torchx.schedulers.local.images import ImageProvider, ReplicaParam
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import RunOptions
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import Tree, scan_workspaces, shown


class Snapshot(NamedTuple):
    """The copy of a workspace that one or more roles run in.

    Attributes:
        folder: path of the copy.
        workspace: the workspace, as requested.
        below: the folder of the image, which is copied first; empty for none.
        tree: the files.
    """

    folder: str
    workspace: str
    below: str
    tree: Tree


def plan(
    app: AppDef, paths: JobPaths, provider: ImageProvider, cfg: RunOptions
) -> tuple[dict[str, Snapshot], list[str]]:
    """Returns the copy for each role with a workspace, and notes for the user.

    Roles with the same workspace and image share a copy.

    Args:
        app: the application.
        paths: the record of the job.
        provider: resolves images.
        cfg: run options.
    """
    known: dict[tuple[str, ...], Snapshot] = {}
    snapshots = {}
    notes: dict[str, None] = {}
    for role, tree in scan_workspaces(app.roles, cfg):
        assert role.workspace is not None
        notes |= dict.fromkeys([*tree.notes, *_notes_on_arguments(role)])
        below = provider.below(role)
        key = (below, *(path for pair in role.workspace.projects.items() for path in pair))
        if key not in known:
            folder = str(paths.workspaces / file_name(role.name))
            known[key] = Snapshot(folder, shown(str(role.workspace)), below, tree)
        snapshots[role.name] = known[key]
    return snapshots, list(notes)


def _notes_on_arguments(role: Role) -> list[str]:
    return [
        f"{argument} is in the original folder, not in the copy that role {role.name} runs in"
        for argument in role.args
        if role.workspace is not None and _is_in_original(argument, role.workspace)
    ]


def run_in(snapshot: Snapshot, param: ReplicaParam, root: str) -> None:
    """Changes a replica to run in a copy, in place.

    Args:
        snapshot: the copy.
        param: the replica, set up to run in the folder of its image.
        root: that folder.
    """
    param.cwd = snapshot.folder
    program = param.args[0]
    if not snapshot.below:
        return
    if program.startswith(f"{root}/"):
        param.args[0] = snapshot.folder + program[len(root) :]
    elif os.sep not in program and (entry := snapshot.tree.find(program)) is not None and entry.kind != "dir":
        param.args[0] = f"{snapshot.folder}/{program}"


def _is_in_original(path: str, workspace: Workspace) -> bool:
    roots = (os.path.abspath(os.path.expanduser(p)) for p in workspace.projects if "://" not in p)  # noqa: PTH100, PTH111
    return path.startswith("/") and any(path == root or path.startswith(f"{root}/") for root in roots)
