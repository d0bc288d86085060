"""What a local scheduler sends: the programs to start, and how that is shown."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torchx.workspace.tree import Tree


@dataclass
class ReplicaParam:
    """One replica as it is started.

    Attributes:
        args: the program and its arguments.
        env: what it gets beyond the environment of the submitting process.
        stdout: file that keeps its output.
        stderr: file that keeps its errors.
        combined: file that keeps both, by lines in their true order.
        cwd: its working directory.
    """

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None


class Snapshot(NamedTuple):
    """The copy of a workspace that some roles run in.

    Attributes:
        folder: where it will lie.
        workspace: what is copied, as it was asked for.
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
        app_id: the id it will have.
        log_dir: the folder of its logs.
        role_params: the replicas of each role, in order.
        role_log_dirs: the log folder of each of them.
        workspaces: the copy that each role with a workspace runs in.
    """

    app_id: str
    log_dir: str
    role_params: dict[str, list[ReplicaParam]] = field(default_factory=dict)
    role_log_dirs: dict[str, list[str]] = field(default_factory=dict)
    workspaces: dict[str, Snapshot] = field(default_factory=dict)


def as_text(request: PopenRequest) -> str:
    """Returns a request for a person to read: each command as one could type it, and its environment."""
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
    for folder in dict.fromkeys(each.folder for each in request.workspaces.values()):
        roles = [role for role, each in request.workspaces.items() if each.folder == folder]
        snapshot = request.workspaces[roles[0]]
        tree = snapshot.tree
        lines.append(f"workspace of {', '.join(roles)}: {snapshot.workspace}")
        lines.append(f"  copied to {folder}, so that edits after the submit do not reach the job")
        if snapshot.below:
            lines.append(f"  laid over a copy of {snapshot.below}")
        lines.append(
            f"  {tree.files:,} file{'' if tree.files == 1 else 's'}, {mb(tree.size)}, digest {tree.digest}"
        )
        lines += [f"  left out ({source}): {_some(paths)}" for source, paths in sorted(tree.left.items())]
    return lines


def _some(paths: list[str]) -> str:
    more = f", and {len(paths) - 8:,} more" if len(paths) > 8 else ""
    return ", ".join(sorted(paths)[:8]) + more
