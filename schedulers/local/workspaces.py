"""Workspaces of local jobs: each job runs in its own copy, which is stored with its record."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from torchx.errors import UsageError
from torchx.jobs.paths import JobPaths, file_name
from torchx.schedulers.local.checks import check_programs
from torchx.schedulers.local.images import ImageProvider
from torchx.schedulers.local.request import PopenRequest, ReplicaParam, Snapshot
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import CfgVal
from torchx.specs.workspace import Workspace
from torchx.workspace.sizes import MB, mb
from torchx.workspace.tree import LARGE_MB, scan_unfiltered, scan_workspaces, shown


def plan(
    app: AppDef, paths: JobPaths, provider: ImageProvider, cfg: Mapping[str, CfgVal]
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


def fill(
    request: PopenRequest, final: Path, folder: Path, report: Callable[[str], None], limit_mb: int | None
) -> None:
    """Copies the workspaces of a job.

    Args:
        request: the job.
        final: the final folder of its record.
        folder: the temporary folder of its record.
        report: called with progress messages.
        limit_mb: maximum size of a workspace in MB.

    Raises:
        UsageError: a workspace has become too large, or does not exist any more.
        StateError: it cannot be read or copied.
    """
    for snapshot in {snapshot.folder: snapshot for snapshot in request.workspaces.values()}.values():
        place = folder / Path(snapshot.folder).relative_to(final)
        tree = snapshot.tree.refreshed(limit_mb)
        image = scan_unfiltered(snapshot.below) if snapshot.below else None
        size = tree.size + (image.size if image is not None else 0)
        if size >= LARGE_MB * MB:
            report(f"copying the workspace, {mb(size)}")
        if image is not None:
            for line in image.set_id:
                report(f"image {snapshot.below}: {line}")
            image.write_to(place)
        tree.write_to(place, into_existing=image is not None)


def check(app: AppDef, request: PopenRequest, final: Path, folder: Path) -> None:
    """Checks that the programs of the roles exist in the copies.

    Raises:
        UsageError: one is missing or cannot be run.
    """
    try:
        check_programs(app, _in_temporary_folder(request, final, folder))
    except UsageError as error:
        message = error.message
        for snapshot in request.workspaces.values():  # the temporary folder is about to be removed
            message = message.replace(snapshot.folder.replace(str(final), str(folder)), snapshot.workspace)
        raise UsageError(message, hint=error.hint) from None


def _in_temporary_folder(request: PopenRequest, final: Path, folder: Path) -> PopenRequest:
    """Returns the request with paths in the temporary folder of the record, to check the programs there."""

    def moved(text: str) -> str:
        return text.replace(str(final), str(folder))

    def first(params: list[ReplicaParam]) -> list[ReplicaParam]:
        return [
            replace(
                param,
                args=[moved(param.args[0]), *param.args[1:]],
                env={name: moved(value) if name == "PATH" else value for name, value in param.env.items()},
                cwd=moved(param.cwd or ""),
            )
            for param in params[:1]
        ]

    params = {
        role: first(params) if role in request.workspaces else params
        for role, params in request.role_params.items()
    }
    return replace(request, role_params=params)
