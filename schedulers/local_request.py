"""What a local scheduler sends: the programs to start, and how that is shown."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field


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


@dataclass
class PopenRequest:
    """All processes of one application.

    Attributes:
        app_id: the id it will have.
        log_dir: the folder of its logs.
        role_params: the replicas of each role, in order.
        role_log_dirs: the log folder of each of them.
    """

    app_id: str
    log_dir: str
    role_params: dict[str, list[ReplicaParam]] = field(default_factory=dict)
    role_log_dirs: dict[str, list[str]] = field(default_factory=dict)


def as_text(request: PopenRequest) -> str:
    """Returns a request for a person to read: each command as one could type it, and its environment."""
    lines = [f"app_id: {request.app_id}", f"logs:   {request.log_dir}"]
    for role, replicas in request.role_params.items():
        for number, replica in enumerate(replicas):
            lines.append(f"{role}/{number}:")
            lines.append(f"  {shlex.join(replica.args)}")
            lines.append(f"  in {replica.cwd}, with the environment of the caller and:")
            lines += [f"    {name}={shlex.quote(value)}" for name, value in sorted(replica.env.items())]
    return "\n".join(lines)
