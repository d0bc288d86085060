"""Checks before the processes of a request start: its programs, limits, texts and folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from torchx import json_shape
from torchx.errors import StateError, UsageError
from torchx.jobs.record import is_own_log_dir
from torchx.lazy import lazy_imports
from torchx.machine.programs import defect_of_script
from torchx.schedulers.local.request import PopenRequest, ReplicaParam
from torchx.scheduling.preflight import without_checks
from torchx.specs.app import AppDef
from torchx.specs.checks import require_passable
from torchx.specs.run_options import RunOptions
from torchx.supervisor.process import files_needed

with lazy_imports:
    import resource


REQUIRES = "requires"
"""Role metadata key: programs that must be on its PATH, each with how to install it."""


def check_limits(request: PopenRequest) -> None:
    """Checks that the limit of open files is enough for a supervisor of these replicas.

    Raises:
        StateError: the supervisor would need more open files than allowed.
    """
    replicas = sum(len(params) for params in request.role_params.values())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < files_needed(replicas) and os.geteuid() != 0:  # root may raise it
        raise StateError(
            f"{replicas} replicas need {files_needed(replicas)} open files; this user may have {hard}",
            hint="raise the hard limit of open files: ulimit -Hn shows it",
        )


def check_texts(request: PopenRequest) -> None:
    """Checks that arguments and environment variables can be passed to a program.

    Raises:
        UsageError: an argument or a variable has a zero byte or is too long, or a variable's name is empty or
            has a =.
    """
    for role, params in request.role_params.items():
        for param in params[:1]:
            require_passable(role, param.args, param.env)
            for argument in param.args:
                if "\0" in argument:
                    raise UsageError(f"role `{role}` has a zero byte in the argument {argument!r}")
            for name, value in param.env.items():
                if "\0" in name + value or "=" in name or not name:
                    raise UsageError(f"role `{role}` has an invalid environment variable: {name!r}")


def check_places(request: PopenRequest, session: str) -> None:
    """Checks the session and the log folder, so that the record of the job will be valid.

    Raises:
        UsageError: the session is not valid in a handle, or the log folder is not this job's own.
    """
    try:
        json_shape.handle_text(session, "session")
    except ValueError as error:
        raise UsageError(
            f"the session {session!r} is not valid in a handle: it has control characters"
        ) from error
    if not is_own_log_dir(request.log_dir, session, request.app_id):
        raise UsageError(
            f"the log folder {request.log_dir} is not this job's own",
            hint=f"its path must end with {Path(session, request.app_id)}",
        )


def check_programs(app: AppDef, cfg: RunOptions, request: PopenRequest) -> None:
    """Checks that the program of each role exists, before any of them starts.

    Raises:
        UsageError: a program is missing or cannot be run.
    """
    for role in app.roles:
        for replica in request.role_params[role.name][:1]:
            program = without_checks(replica.args)[0]
            if program != replica.args[0] and find_program(replica.args[0], replica) is None:
                raise UsageError(
                    f"role `{role.name}` needs `{replica.args[0]}` for its preflight checks or set-up"
                )
            if cfg.get("setup_once"):  # which may install the program
                continue
            requires = role.metadata.get(REQUIRES, {})
            for program, how_to_get in requires.items() if isinstance(requires, Mapping) else ():
                if find_program(program, replica) is None:
                    raise UsageError(
                        f"role `{role.name}` needs `{program}`, which is not on PATH",
                        hint=f"install it: {how_to_get}",
                    )
            found = find_program(program, replica)
            if found is None:
                raise UsageError(f"role `{role.name}` cannot be started: {_why_not(program, replica)}")
            if defect := defect_of_script(Path(found)):
                raise UsageError(f"role `{role.name}` cannot be started: {found} {defect}")


def find_program(program: str, replica: ReplicaParam) -> str | None:
    """Returns the path at which a replica finds a program, or None."""
    if os.sep in program:
        path = Path(replica.cwd or "", program)
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        return None
    return shutil.which(program, path=replica.env.get("PATH") or os.defpath)


def _why_not(program: str, replica: ReplicaParam) -> str:
    if os.sep not in program:
        return f"no program `{program}` on PATH"
    path = Path(replica.cwd or "", program)
    if not path.exists():
        return f"{path} does not exist"
    if path.is_dir():
        return f"{path} is a folder"
    return f"{path} is not executable (chmod +x)"
