"""Requests of the local schedulers: the processes to start, and their text form."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import settings
from torchx.jobs.paths import Home, LogPaths, user_home
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded
from torchx.printable import counted, few
from torchx.schedulers.ids import make_unique
from torchx.schedulers.local.checks import notes_of
from torchx.schedulers.local.images import ImageProvider
from torchx.schedulers.local.images import ReplicaParam as ReplicaParam
from torchx.scheduling.base import replica_variables, replicas_of
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.preflight import SHARED_FILE, with_checks, without_checks
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.handles import make_app_handle
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.schedulers.local import workspaces as local_workspaces
    from torchx.services import rules
    from torchx.workspace import sizes

if TYPE_CHECKING:
    from torchx.schedulers.local.workspaces import Snapshot


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


def dry_run(
    app: AppDef,
    cfg: RunOptions,
    backend: str,
    session: str,
    provider_of: Callable[[RunOptions], ImageProvider],
    extra_paths: Sequence[str],
    *,
    knows_hosts: bool = True,
) -> AppDryRunInfo[PopenRequest]:
    """Returns the request for an application, with notes; starts and writes nothing.

    Args:
        app: the application.
        cfg: the run options, checked.
        backend: the scheduler's name in handles.
        session: the session part of handles.
        provider_of: returns the image provider for run options.
        extra_paths: folders appended to the PATH of the replicas.
        knows_hosts: all replicas run on this machine.
    """
    app_id = make_unique(app.name)
    provider = provider_of(cfg)
    hosts = {role.name: ",".join(["localhost"] * role.num_replicas) for role in app.roles}
    addresses = {}
    if len(hosts) > 1 and knows_hosts:
        addresses = rules.host_variables(hosts)
    option = cfg.get("log_dir")
    # absolute: the supervisor has another working directory
    if option:
        log_dir = expanded(str(option)).absolute()
    else:
        log_dir = Home(user_home()).logs
    logs = LogPaths(log_dir / session / app_id)
    request = PopenRequest(app_id, str(logs.folder))
    notes: list[str] = []
    if any(role.workspace for role in app.roles):
        paths = Home(user_home()).job(app_id)
        request.workspaces, notes = local_workspaces.plan(app, paths, provider, cfg)
    for role in app.roles:
        name = role.name
        params = request.role_params.setdefault(name, [])
        dirs = request.role_log_dirs.setdefault(name, [])
        root = provider.locate_role(role)
        snapshot = request.workspaces.get(name)
        img_root = snapshot.folder if snapshot else root
        only = AppDef(app.name, [role])
        handle = make_app_handle(backend, session, app_id)
        elastic, beside = str(logs.torchelastic(name)), str(Path(sys.executable).parent)
        for _, replica, filled in replicas_of(
            only, app_id=app_id, img_root=img_root, rank0_env=settings.TORCHX_RANK0_HOST, hosts=hosts
        ):
            folder = str(logs.replica(name, replica))
            files = (f"{folder}/{stream}.log" for stream in ("stdout", "stderr", "combined"))
            param = provider.get_replica_param(root, filled, *files)
            if snapshot is not None:
                local_workspaces.run_in(snapshot, param, root)
            param.env = _env(role, replica, handle, folder, elastic) | addresses | param.env
            # last, programs installed beside this one: the virtual environment may not be activated
            param.env["PATH"] = _path(param, cfg, [*extra_paths, beside])
            param.args = with_checks(param.args, filled, cfg, SHARED_FILE, here=True)
            params.append(param)
            dirs.append(folder)
    info = AppDryRunInfo(request, as_text)
    info.notes += notes + notes_of(app, reserves=bool(cfg.get("reserve"))) + LimitRule.of(cfg).notes(backend)
    return info


def _env(role: Role, replica: int, handle: str, folder: str, elastic: str) -> dict[str, str]:
    """Returns the variables of a replica that its role may override.

    Args:
        role: its role.
        replica: its number.
        handle: the application.
        folder: its log folder.
        elastic: the folder for the worker logs of torchelastic.
    """
    return {
        "PYTHONUNBUFFERED": "x",
        settings.TORCHX_RANK0_HOST: "localhost",
        settings.TORCHX_JOB_ID: handle,
        **replica_variables(role.name, replica, role.num_replicas),
        "TORCHELASTIC_ERROR_FILE": f"{folder}/error.json",
        "PET_LOG_DIR": elastic,
        **{name: value for name, value in settings.REPLICA_DEFAULTS.items() if name not in os.environ},
        # torchrun would pass this machine's full name to the workers, which may not resolve
        "PET_LOCAL_ADDR": "localhost",
    }


def _path(param: ReplicaParam, cfg: RunOptions, extra_paths: Sequence[str]) -> str:
    path = [p for p in (param.env.get("PATH", os.environ.get("PATH", os.defpath)),) if p]
    cwd = [param.cwd] if param.cwd else []
    if cfg.get("prepend_cwd"):
        path = cwd + path
    else:
        path = path + cwd
    return os.pathsep.join([*path, *extra_paths])


def as_text(request: PopenRequest) -> str:
    """Returns the request as readable text: each command, quoted for a shell, and its environment."""
    lines = [f"app_id: {request.app_id}", f"logs:   {request.log_dir}"]
    if request.workspaces:
        lines += _workspaces(request)
    for role, replicas in request.role_params.items():
        for number, replica in enumerate(replicas):
            lines.append(f"{role}/{number}:")
            command = without_checks(replica.args)
            lines.append(f"  {shlex.join(command)}")
            if command != replica.args:
                lines.append("  after its checks and set-up; the whole command is in the output of -o json")
            lines.append(f"  in {replica.cwd}, with the environment of the caller and:")
            lines += [f"    {name}={shlex.quote(value)}" for name, value in sorted(replica.env.items())]
    return "\n".join(lines)


def _workspaces(request: PopenRequest) -> list[str]:
    lines = []
    for folder in dict.fromkeys(snapshot.folder for snapshot in request.workspaces.values()):
        roles = [role for role, snapshot in request.workspaces.items() if snapshot.folder == folder]
        snapshot = request.workspaces[roles[0]]
        tree = snapshot.tree
        lines.append(f"workspace of {', '.join(roles)}: {snapshot.workspace}")
        lines.append(f"  copied to {folder}, so that edits after the submit do not reach the job")
        if snapshot.below:
            lines.append(f"  on top of a copy of {snapshot.below}")
        lines.append(f"  {counted(tree.files, 'file')}, {sizes.mb(tree.size)}, digest {tree.digest}")
        lines += [
            f"  excluded ({source}): {few(sorted(paths), 8)}" for source, paths in sorted(tree.left.items())
        ]
    return lines
