"""Starts local jobs from requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.jobs.paths import Home, JobPaths, state_home
from torchx.jobs.record import JobRecord, ReplicaRecord, RoleRecord
from torchx.lazy import lazy_imports
from torchx.schedulers.local.checks import require_system
from torchx.schedulers.local.images import ImageProvider
from torchx.schedulers.local.request import PopenRequest
from torchx.schedulers.local.request_checks import check_limits, check_places, check_programs, check_texts
from torchx.schedulers.shared.options import NO_WAIT, provide_checkpoint_dir
from torchx.scheduling.checks import require_application
from torchx.settings import AFTER, POLICIES, SERVICE
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.run_options import RunOptions
from torchx.specs.serialize import app_to_dict
from torchx.supervisor.launch import launch
from torchx.workspace.options import limit_of

with lazy_imports:
    from torchx.jobs import ticket as tickets
    from torchx.leases import gpus as machine_gpus
    from torchx.machine import ports as machine_ports
    from torchx.notifications import store
    from torchx.schedulers.local import copies
    from torchx.schedulers.shared import queue
    from torchx.schedulers.shared import reservation as reservations
    from torchx.services import rules
    from torchx.supervisor import foreign_policies

if TYPE_CHECKING:
    from torchx.jobs.ticket import Ticket
    from torchx.schedulers.shared.reservation import Capacity, Needs, Reservation


def schedule(
    info: AppDryRunInfo[PopenRequest],
    backend: str,
    session: str,
    provider_of: Callable[[RunOptions], ImageProvider],
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
    app, request, cfg = require_application(info), info.request, info.cfg
    _check(app, info, backend, session, provider_of(cfg))
    home = Home(state_home())
    final = home.job(request.app_id).folder

    def fill(folder: Path) -> None:
        """Adds notifications, workspaces and the ticket to a record's folder, and checks the programs."""
        if info.notify is not None:
            store.Store(JobPaths(folder).notifications).create(info.notify)
        if request.workspaces:
            copies.fill(request, final, folder, info.on_progress, limit_of(cfg))
            copies.check(app, cfg, request, final, folder)
        if ticket is not None:
            queue.fill(folder, ticket, os.environ)

    submitted_at = datetime.now().timestamp()
    with ExitStack() as held:
        reservation, ticket, notes = _reserve(app, request, cfg, submitted_at)
        if reservation is None:
            descriptors = []
        else:
            descriptors = [*held.enter_context(reservation).descriptors]
        names = set(_ports_of(app))
        if names and ticket is None:  # else they are leased when it starts
            ports = held.enter_context(machine_ports.PortLeases(names))
            descriptors += ports.descriptors
            for param in (param for params in request.role_params.values() for param in params):
                param.env = {**ports.env, **param.env}
        record = _record(app, request, cfg, backend, session, submitted_at)
        if ticket is not None:
            launch(home, record, fill=fill, supervise=False)
            notes += queue.enqueue(home, request.app_id)
        else:
            launch(home, record, held=descriptors, fill=fill)
    info.notes += notes
    return request.app_id


def _check(
    app: AppDef, info: AppDryRunInfo[PopenRequest], backend: str, session: str, provider: ImageProvider
) -> None:
    """Checks a request before anything is recorded.

    Raises:
        UsageError: a program is missing, or the request is invalid.
        StateError: this system cannot supervise processes, or a folder cannot be used.
    """
    request = info.request
    require_system(backend)
    for role in app.roles:
        provider.fetch_role(role)
    info.notes += provider.notes
    check_texts(request)
    check_places(request, session)
    if not request.workspaces:
        check_programs(app, info.cfg, request)
    check_limits(request)
    provide_checkpoint_dir(info.cfg)


def _record(
    app: AppDef, request: PopenRequest, cfg: RunOptions, backend: str, session: str, at: float
) -> JobRecord:
    """Returns the record of a job that is submitted at a time, seconds since the epoch."""
    return JobRecord(
        app_id=request.app_id,
        scheduler=backend,
        session=session,
        name=app.name,
        submitted_at=at,
        log_dir=request.log_dir,
        roles=[_role_record(role, request) for role in app.roles],
        app=app_to_dict(app, strict=False),
        cfg=dict(cfg),
        grace=float(str(cfg["grace_period"])),
        fail_fast=bool(cfg["fail_fast"]),
        backoff=float(str(cfg["retry_backoff"])),
        policies=foreign_policies.references_of(cfg) if cfg.get(POLICIES) else (),
    )


def _reserve(
    app: AppDef, request: PopenRequest, cfg: RunOptions, at: float
) -> tuple[Reservation | None, Ticket | None, list[str]]:
    """Leases the resources of the replicas, and passes the GPUs to those that request them.

    Returns:
        The reservation, None without leases; the ticket if the job has to wait; and notes for the user.

    Raises:
        StateError: they are required, and not free.
    """
    if not cfg.get("reserve") and all(role.resource.gpu <= 0 for role in app.roles):
        return None, None, []
    requesting = [
        role
        for role in app.roles
        if role.resource.gpu > 0 and machine_gpus.CUDA_VISIBLE_DEVICES not in role.env
    ]
    needs = reservations.needs_of(
        app.roles, sum(role.resource.gpu * role.num_replicas for role in requesting), cfg
    )
    if not any(needs):
        return None, None, []
    here = reservations.capacity(needs, os.environ)
    per_role = [(role.name, role.resource.gpu) for role in requesting]
    reservation = queue.take_or_wait(request.app_id, at, needs, here, cfg, per_role, _ports_of(app))
    if isinstance(reservation, tickets.Ticket):
        return None, reservation, []
    if reservation is None:
        if not (cfg.get(NO_WAIT) or cfg.get("reserve") or cfg.get("auto_set_cuda_visible_devices")):
            return None, None, [_shared(app.name, needs, here)]
        reservation = reservations.require(needs, here, app.name)
    _pass_gpus(requesting, request, reservation)
    return reservation, None, []


def _pass_gpus(roles: Iterable[Role], request: PopenRequest, reservation: Reservation) -> None:
    """Passes the leased GPUs to the replicas of roles."""
    left = iter(reservation.gpus)
    for role in roles:
        for param in request.role_params[role.name]:
            param.env.update(machine_gpus.variables_of([next(left) for _ in range(role.resource.gpu)]))


def _ports_of(app: AppDef) -> list[str]:
    return [name for role in app.roles for name in role.port_map]


def _shared(name: str, needs: Needs, here: Capacity) -> str:
    """Returns the note on an application that starts without the resources it requests."""
    if not here.gpus:
        return f"{name} requests {needs}; none is visible"
    short = here.shortage(needs) or f"{needs}; other jobs have just taken some"
    return f"{name} requests {short}: none is reserved, all replicas see all of them"


def _role_record(role: Role, request: PopenRequest) -> RoleRecord:
    params = request.role_params[role.name]
    snapshot = request.workspaces.get(role.name)
    # variables that all replicas share are stored once
    shared = {}
    if params:
        shared = dict(set.intersection(*(set(p.env.items()) for p in params)))
    replicas = [ReplicaRecord(p.args, {k: v for k, v in p.env.items() if k not in shared}) for p in params]
    cwd = params[0].cwd if params else None
    if {SERVICE, AFTER} & role.metadata.keys():
        service, after = rules.of_role(role)
    else:
        service, after = (None, ())
    return RoleRecord(
        role.name,
        replicas,
        shared,
        cwd,
        role.max_retries,
        role.retry_policy.value,
        workspace=snapshot.folder if snapshot is not None else None,
        service=service,
        after=after,
    )
