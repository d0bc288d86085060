"""Starts local jobs from requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Home, state_home
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.lazy import lazy_imports
from torchx.schedulers.local.checks import require_system
from torchx.schedulers.local.images import ImageProvider
from torchx.schedulers.local.request import PopenRequest
from torchx.schedulers.local.request_checks import check_limits, check_places, check_programs, check_texts
from torchx.schedulers.shared.gpus import CUDA_VISIBLE_DEVICES, Leases, left_by_jobs, visible_gpus
from torchx.scheduling.checks import require_application
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.run_options import CfgVal
from torchx.specs.serialize import app_to_dict
from torchx.supervisor.launch import launch
from torchx.workspace.options import limit_of

with lazy_imports:
    from torchx.machine import ports as machine_ports
    from torchx.schedulers.local import copies


def schedule(
    info: AppDryRunInfo[PopenRequest],
    backend: str,
    session: str,
    provider_of: Callable[[Mapping[str, CfgVal]], ImageProvider],
) -> str:
    """Starts the supervisor of a job, and returns the id of the job.

    Args:
        info: the request.
        backend: the scheduler's name in handles.
        session: the session part of handles.
        provider_of: returns the image provider for run options.

    Raises:
        UsageError: a program is missing, or the request was submitted before.
        StateError: this system cannot supervise processes, required GPUs are not free, the state home or
            the log folder cannot be used, or the supervisor cannot be started.
    """
    app = require_application(info)
    require_system(backend)
    submitter = _Submitter(backend, session, provider_of(info.cfg), info.cfg)
    info.notes += submitter.submit(info.request, app, info.on_progress)
    return info.request.app_id


@dataclass(frozen=True)
class _Submitter:
    """Submits the requests of one local scheduler; for the attributes, see :func:`schedule`."""

    backend: str
    session: str
    provider: ImageProvider
    cfg: Mapping[str, CfgVal]

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
                ports = held.enter_context(machine_ports.PortLeases(names))
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
        final = home.job(request.app_id).folder

        def fill(folder: Path) -> None:
            copies.fill(request, final, folder, report, limit_of(self.cfg))
            copies.check(app, request, final, folder)

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
            with left_by_jobs(visible) as free:
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
