"""What is looked at before a local job starts: its programs, and what this machine cannot honour."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchx.errors import StateError, UsageError
from torchx.jobs import shape
from torchx.jobs.record import is_own_log_dir
from torchx.machine import processes
from torchx.schedulers.local.request import PopenRequest, ReplicaParam
from torchx.specs.app import AppDef, Role
from torchx.supervisor.replicas import files_needed

REQUIRES = "requires"
"""Metadata of a role: programs that must be on its PATH, each with the way to get it."""


def require_system(scheduler: str) -> None:
    """Checks that this system can supervise processes.

    Raises:
        StateError: it cannot; the message names the requirement.
    """
    lacking = processes.missing()
    if lacking is not None:
        raise StateError(
            f"{scheduler} needs {lacking}", hint="run it elsewhere: -s local_docker, -s slurm, -s kubernetes"
        )


def check_limits(request: PopenRequest) -> None:
    """Looks whether a supervisor of so many replicas may be, so that one that may not starts none of them.

    Raises:
        StateError: it would have to open more files than it may.
    """
    import resource

    replicas = sum(len(params) for params in request.role_params.values())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < files_needed(replicas) and os.geteuid() != 0:  # root may raise it
        raise StateError(
            f"{replicas} replicas need {files_needed(replicas)} open files; this user may have {hard}",
            hint="raise the hard limit of open files: ulimit -Hn shows it",
        )


def check_texts(request: PopenRequest) -> None:
    """Looks at words that no program can be given.

    Raises:
        UsageError: an argument or a variable has a zero byte, or a variable's name has a =.
    """
    for role, params in request.role_params.items():
        for param in params[:1]:
            for word in param.args:
                if "\0" in word:
                    raise UsageError(f"role `{role}` has a zero byte in the argument {word!r}")
            for name, value in param.env.items():
                if "\0" in name + value or "=" in name or not name:
                    raise UsageError(f"role `{role}` has an environment variable that cannot be: {name!r}")


def check_places(request: PopenRequest, session: str) -> None:
    """Checks that the record of a job will be one that can be read again.

    Raises:
        UsageError: the session cannot stand in a handle, or the log folder is not one of this job alone.
    """
    try:
        shape.word(session, "session")
    except ValueError as error:
        raise UsageError(
            f"the session {session!r} cannot stand in a handle: it has control characters"
        ) from error
    if not is_own_log_dir(request.log_dir, session, request.app_id):
        raise UsageError(
            f"the log folder {request.log_dir} is not one of this job alone",
            hint=f"its path ends with {Path(session, request.app_id)}",
        )


def check_programs(app: AppDef, request: PopenRequest) -> None:
    """Looks for the program of each role, so that a job with one missing starts nothing at all.

    Raises:
        UsageError: a program is missing or cannot be run.
    """
    for role in app.roles:
        for replica in request.role_params[role.name][:1]:
            requires = role.metadata.get(REQUIRES, {})
            for program, how_to_get in requires.items() if isinstance(requires, Mapping) else ():
                if find_program(program, replica) is None:
                    raise UsageError(
                        f"role `{role.name}` needs `{program}`, which is not on PATH",
                        hint=f"get it: {how_to_get}",
                    )
            program = replica.args[0]
            if find_program(program, replica) is None:
                raise UsageError(f"role `{role.name}` cannot be started: {_why_not(program, replica)}")


def find_program(program: str, replica: ReplicaParam) -> str | None:
    """Returns where a replica would find a program, None when it would not."""
    if os.sep in program:
        path = Path(replica.cwd or "", program)
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return shutil.which(program, path=replica.env.get("PATH") or os.defpath)


def _why_not(program: str, replica: ReplicaParam) -> str:
    if os.sep not in program:
        return f"no program `{program}` on PATH"
    path = Path(replica.cwd or "", program)
    if not path.exists():
        return f"there is no {path}"
    return f"{path} is a folder" if path.is_dir() else f"{path} is not executable (chmod +x)"


def notes_of(app: AppDef) -> list[str]:
    """Returns what of an application this machine cannot honour, one line for each kind of thing."""
    notes = []
    for what, asks in _CANNOT:
        roles = [role.name for role in app.roles if asks(role)]
        if roles:
            notes.append(f"{what} (role {', '.join(roles)})")
    return notes


def _asks_for_devices(role: Role) -> bool:
    return bool(role.resource.devices)


def _asks_for_too_much(role: Role) -> bool:
    """Tells whether one replica asks for more than the whole machine has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return role.resource.cpu > (os.cpu_count() or 1) or role.resource.memMB > memory


_CANNOT = (
    ("a replica asks for more CPU or memory than this machine has; nothing limits it", _asks_for_too_much),
    ("mounts are not made for local processes: they see the files of this machine", lambda r: bool(r.mounts)),
    ("devices are not handed out to local processes: they see those of this machine", _asks_for_devices),
    (
        "min_replicas means nothing for local processes: all replicas start",
        lambda r: r.min_replicas not in (None, r.num_replicas),
    ),
)
