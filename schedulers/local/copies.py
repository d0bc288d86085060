"""Copies the workspaces of a local job into its record, and checks the programs in the copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torchx.errors import UsageError
from torchx.schedulers.local.images import ReplicaParam
from torchx.schedulers.local.request import PopenRequest
from torchx.schedulers.local.request_checks import check_programs
from torchx.specs.app import AppDef
from torchx.specs.run_options import RunOptions
from torchx.workspace.sizes import MB, mb
from torchx.workspace.tree import LARGE_MB, scan_unfiltered


def fill(
    request: PopenRequest, final: Path, folder: Path, report: Callable[[str], None], limit_mb: int | None
) -> None:
    """Copies the workspaces of a job.

    Args:
        request: the job.
        final: the final folder of its record.
        folder: the temporary folder of its record.
        report: called with progress messages.
        limit_mb: largest workspace, in MB.

    Raises:
        UsageError: a workspace has become too large, or does not exist any more.
        StateError: it cannot be read or copied.
    """
    for snapshot in {snapshot.folder: snapshot for snapshot in request.workspaces.values()}.values():
        place = folder / Path(snapshot.folder).relative_to(final)
        tree = snapshot.tree.refreshed(limit_mb)
        image = None
        if snapshot.below:
            image = scan_unfiltered(snapshot.below)
        size = tree.size + (image.size if image is not None else 0)
        if size >= LARGE_MB * MB:
            report(f"copying the workspace, {mb(size)}")
        if image is not None:
            for line in image.set_id:
                report(f"image {snapshot.below}: {line}")
            image.write_to(place)
        tree.write_to(place, into_existing=image is not None)
        for line in tree.vanished:
            report(line)


def check(app: AppDef, cfg: RunOptions, request: PopenRequest, final: Path, folder: Path) -> None:
    """Checks that the programs of the roles exist in the copies.

    Raises:
        UsageError: one is missing or cannot be run.
    """
    try:
        check_programs(app, cfg, _in_temporary_folder(request, final, folder))
    except UsageError as error:
        for snapshot in request.workspaces.values():  # the temporary folder is about to be removed
            copy = snapshot.folder.replace(str(final), str(folder))
            error.message = error.message.replace(copy, snapshot.workspace)
        raise


def _in_temporary_folder(request: PopenRequest, final: Path, folder: Path) -> PopenRequest:
    """Returns the request with paths in the temporary folder of the record, to check the programs there."""

    def moved(text: str) -> str:
        return text.replace(str(final), str(folder))

    def first(params: list[ReplicaParam]) -> list[ReplicaParam]:
        return [
            replace(
                param,
                args=list(map(moved, param.args)),
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
