"""Requests of the local schedulers: the processes to start, and their text form."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torchx.workspace.tree import Tree


@dataclass
class ReplicaParam:
    """The process of one replica.

    Attributes:
        args: the program and its arguments.
        env: variables in addition to the environment of the submitting process.
        stdout: file for its standard output.
        stderr: file for its standard error.
        combined: file for both, whole lines in order of time.
        cwd: its working directory.
    """

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None


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


@dataclass
class PopenRequest:
    """All processes of one application.

    Attributes:
        app_id: its id.
        log_dir: the folder of its logs.
        role_params: the replicas of each role, in order.
        role_log_dirs: the log folder of each replica, by role.
        workspaces: the copy for each role with a workspace.
    """

    app_id: str
    log_dir: str
    role_params: dict[str, list[ReplicaParam]] = field(default_factory=dict)
    role_log_dirs: dict[str, list[str]] = field(default_factory=dict)
    workspaces: dict[str, Snapshot] = field(default_factory=dict)


def as_text(request: PopenRequest) -> str:
    """Returns the request as readable text: each command, quoted for a shell, and its environment."""
    lines = [f"app_id: {request.app_id}", f"logs:   {request.log_dir}"]
    if request.workspaces:
        lines += _workspaces(request)
    for role, replicas in request.role_params.items():
        for number, replica in enumerate(replicas):
            lines.append(f"{role}/{number}:")
            lines.append(f"  {shlex.join(replica.args)}")
            lines.append(f"  in {replica.cwd}, with the environment of the caller and:")
            lines += [f"    {name}={shlex.quote(value)}" for name, value in sorted(replica.env.items())]
    return "\n".join(lines)


def _workspaces(request: PopenRequest) -> list[str]:
    from torchx.workspace.sizes import mb

    lines = []
    for folder in dict.fromkeys(snapshot.folder for snapshot in request.workspaces.values()):
        roles = [role for role, snapshot in request.workspaces.items() if snapshot.folder == folder]
        snapshot = request.workspaces[roles[0]]
        tree = snapshot.tree
        lines.append(f"workspace of {', '.join(roles)}: {snapshot.workspace}")
        lines.append(f"  copied to {folder}, so that edits after the submit do not reach the job")
        if snapshot.below:
            lines.append(f"  on top of a copy of {snapshot.below}")
        lines.append(
            f"  {tree.files:,} file{'' if tree.files == 1 else 's'}, {mb(tree.size)}, digest {tree.digest}"
        )
        lines += [f"  excluded ({source}): {_some(paths)}" for source, paths in sorted(tree.left.items())]
    return lines


def _some(paths: list[str]) -> str:
    more = f", and {len(paths) - 8:,} more" if len(paths) > 8 else ""
    return ", ".join(sorted(paths)[:8]) + more
