"""Submission to the local schedulers: builds requests from applications and starts jobs from them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from torchx import settings
from torchx.errors import StateError
from torchx.jobs.paths import Home, LogPaths, state_home, user_home
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.schedulers.ids import make_unique
from torchx.schedulers.local.checks import check_limits, check_places, check_programs, check_texts
from torchx.schedulers.local.images import ImageProvider
from torchx.schedulers.local.request import PopenRequest, ReplicaParam
from torchx.schedulers.shared.gpus import CUDA_VISIBLE_DEVICES, Leases, visible_gpus
from torchx.scheduling.base import replicas_of
from torchx.specs.app import AppDef, Role
from torchx.specs.handles import make_app_handle
from torchx.specs.run_options import CfgVal
from torchx.specs.serialize import app_to_dict
from torchx.supervisor.launch import launch


@dataclass(frozen=True)
class Submitter:
    """Builds and submits the requests of one local scheduler.

    Attributes:
        backend: the scheduler's name in handles.
        session: the session part of handles.
        provider: resolves images.
        cfg: the run options, checked.
        extra_paths: folders appended to the PATH of the replicas.
    """

    backend: str
    session: str
    provider: ImageProvider
    cfg: Mapping[str, CfgVal]
    extra_paths: Sequence[str] = ()

    def request(self, app: AppDef) -> tuple[PopenRequest, list[str]]:
        """Returns the processes of an application, and notes on its workspaces; starts and writes nothing."""
        app_id = make_unique(app.name)
        option = self.cfg.get("log_dir")
        # absolute: the supervisor has another working directory
        log_dir = Path(str(option)).expanduser().absolute() if option else Home(user_home()).logs
        logs = LogPaths(log_dir / self.session / app_id)
        request = PopenRequest(app_id, str(logs.folder))
        notes: list[str] = []
        if any(role.workspace for role in app.roles):
            from torchx.schedulers.local import workspaces as local_workspaces  # on demand: few jobs have one

            paths = Home(user_home()).job(app_id)
            request.workspaces, notes = local_workspaces.plan(app, paths, self.provider, self.cfg)
        for role in app.roles:
            params: list[ReplicaParam] = []
            dirs: list[str] = []
            root = self.provider.locate_role(role)
            snapshot = request.workspaces.get(role.name)
            only = AppDef(app.name, [role])
            for _, replica, filled in replicas_of(
                only,
                app_id=app_id,
                img_root=snapshot.folder if snapshot else root,
                rank0_env=settings.TORCHX_RANK0_HOST,
            ):
                folder = logs.replica(role.name, replica)
                files = (str(folder / f"{stream}.log") for stream in ("stdout", "stderr", "combined"))
                param = self.provider.get_replica_param(root, filled, *files)
                if snapshot is not None:
                    local_workspaces.run_in(snapshot, param, root)
                param.env = self._env(param, filled, app_id, logs, replica)
                params.append(param)
                dirs.append(str(folder))
            request.role_params[role.name] = params
            request.role_log_dirs[role.name] = dirs
        return request, notes

    def _env(
        self, param: ReplicaParam, role: Role, app_id: str, logs: LogPaths, replica: int
    ) -> dict[str, str]:
        """Returns the environment of a replica; variables that the role sets win."""
        env = {
            "PYTHONUNBUFFERED": "x",
            settings.TORCHX_RANK0_HOST: "localhost",
            settings.TORCHX_JOB_ID: make_app_handle(self.backend, self.session, app_id),
            settings.TORCHX_REPLICA: f"{role.name}/{replica}",
            "TORCHELASTIC_ERROR_FILE": str(logs.replica(role.name, replica) / "error.json"),
            "PET_LOG_DIR": str(logs.torchelastic(role.name)),
            # torchrun would pass this machine's full name to the workers, which may not resolve
            "PET_LOCAL_ADDR": "localhost",
            **param.env,
        }
        path = [p for p in (env.get("PATH", os.environ.get("PATH", os.defpath)),) if p]
        cwd = [param.cwd] if param.cwd else []
        # last, programs installed beside this one: the virtual environment may not be activated
        beside = [str(Path(sys.executable).parent)]
        path = cwd + path if self.cfg.get("prepend_cwd") else path + cwd
        env["PATH"] = os.pathsep.join([*path, *self.extra_paths, *beside])
        return env

    def submit(
        self, request: PopenRequest, app: AppDef, report: Callable[[str], None] = lambda line: None
    ) -> list[str]:
        """Writes the record of a job and starts its supervisor.

        Args:
            request: the job.
            app: the application of the request.
            report: called with progress messages.

        Returns:
            Notes for the user, one line each.

        Raises:
            UsageError: a program is missing, or the request was submitted before.
            StateError: required GPUs are not free, the state home or the log folder cannot be used, or the
                supervisor cannot be started.
        """
        for role in app.roles:
            self.provider.fetch_role(role)
        check_texts(request)
        check_places(request, self.session)
        if not request.workspaces:
            check_programs(app, request)
        check_limits(request)
        home = Home(state_home())
        leases = Leases(home.devices)
        with closing(leases), ExitStack() as held:
            notes = self._lease_gpus(app, request, leases)
            descriptors = list(leases.held)
            names = {name for role in app.roles for name in role.port_map}
            if names:
                from torchx.machine.ports import PortLeases  # on demand: few applications have ports

                ports = held.enter_context(PortLeases(names))
                descriptors += ports.descriptors
                for param in (param for params in request.role_params.values() for param in params):
                    param.env = {**ports.env, **param.env}
            fill = self._filler(request, app, home, report) if request.workspaces else None
            launch(home, self._record(request, app), held=descriptors, fill=fill)
        return notes

    def _filler(
        self, request: PopenRequest, app: AppDef, home: Home, report: Callable[[str], None]
    ) -> Callable[[Path], None]:
        """Returns a function that copies the workspaces into a record's folder and checks the programs."""
        from torchx.schedulers.local import workspaces as local_workspaces

        limit = self.cfg.get("workspace_limit_mb")
        final = home.job(request.app_id).folder

        def fill(folder: Path) -> None:
            local_workspaces.fill(request, final, folder, report, limit if isinstance(limit, int) else None)
            local_workspaces.check(app, request, final, folder)

        return fill

    def _lease_gpus(self, app: AppDef, request: PopenRequest, leases: Leases) -> list[str]:
        """Leases GPUs for the replicas that request them; returns notes for the user."""
        requesting = [
            role for role in app.roles if role.resource.gpu > 0 and CUDA_VISIBLE_DEVICES not in role.env
        ]
        total = sum(role.resource.gpu * role.num_replicas for role in requesting)
        if not total:
            return []
        visible, taken = visible_gpus(os.environ), []
        if len(visible) >= total:
            from torchx.schedulers.docker.gpus import left_by_containers

            with left_by_containers(visible) as free:
                taken = leases.take(free, total)
        if len(taken) < total:
            leases.close()
            free_here = f"this machine has {len(visible)}, {len(taken)} of them free"
            short = f"{app.name} requests {total} GPUs; {free_here}"
            if self.cfg.get("auto_set_cuda_visible_devices"):
                raise StateError(short, hint="list the running applications: torchx list")
            seen = "none is reserved, all replicas see all of them"
            return [f"{short}: {seen}" if visible else f"{app.name} requests {total} GPUs; none is visible"]
        leased = iter(taken)
        for role in requesting:
            for param in request.role_params[role.name]:
                param.env[CUDA_VISIBLE_DEVICES] = ",".join(next(leased) for _ in range(role.resource.gpu))
        return []

    def _record(self, request: PopenRequest, app: AppDef) -> JobRecord:
        """Returns the record of a job that is about to start."""
        return JobRecord(
            app_id=request.app_id,
            scheduler=self.backend,
            session=self.session,
            name=app.name,
            submitted_at=datetime.now().timestamp(),
            log_dir=request.log_dir,
            roles=[_role_record(role, request) for role in app.roles],
            app=app_to_dict(app, strict=False),
            cfg=dict(self.cfg),
            grace=float(str(self.cfg["grace_period"])),
            fail_fast=bool(self.cfg["fail_fast"]),
            backoff=float(str(self.cfg["retry_backoff"])),
        )


def _role_record(role: Role, request: PopenRequest) -> RoleRecord:
    params = request.role_params[role.name]
    snapshot = request.workspaces.get(role.name)
    # variables that all replicas share are stored once
    shared = dict(set.intersection(*(set(p.env.items()) for p in params))) if params else {}
    replicas = [ReplicaRecord(p.args, {k: v for k, v in p.env.items() if k not in shared}) for p in params]
    cwd = params[0].cwd if params else None
    return RoleRecord(
        role.name,
        replicas,
        shared,
        cwd,
        role.max_retries,
        role.retry_policy.value,
        workspace=snapshot.folder if snapshot is not None else None,
    )
