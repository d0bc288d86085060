"""Jobs of this machine that wait for resources: whether a job waits, and its ticket."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import ticket
from torchx.jobs.catalog import end_orphans
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import Home, JobPaths, user_home
from torchx.jobs.ticket import MOST_PRIORITY, Ticket
from torchx.jobs.view import load
from torchx.lazy import lazy_imports
from torchx.machine import processes
from torchx.schedulers.shared.options import NO_WAIT, PRIORITY
from torchx.schedulers.shared.reservation import Capacity, Needs, Reservation
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.notes import as_note
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.leases import machine
    from torchx.queue import keepers, launch, quotas, reasons


def take_or_wait(
    app_id: str,
    at: float,
    needs: Needs,
    here: Capacity,
    cfg: RunOptions,
    per_role: Iterable[tuple[str, int]] = (),
    ports: Iterable[str] = (),
) -> Reservation | Ticket | None:
    """Takes the leases of a job, or returns its ticket if it has to wait for them.

    Args:
        app_id: the job.
        at: the time of its submission, seconds since the epoch.
        needs: the resources that it reserves.
        here: the resources that it may use.
        cfg: the run options.
        per_role: the GPUs of each replica, by role.
        ports: the names of the ports to lease at its start.

    Returns:
        None if it neither gets them nor may wait: too few are free, and it must not wait, or this machine
        does not have them.

    Raises:
        StateError: it must not wait, and would exceed the limits of this user.
    """
    if cfg.get(NO_WAIT) and (excess := quotas.excess_of_caller(needs.gpus)):
        raise StateError(excess, hint="without --no-queue, the job waits", code="insufficient_resources")
    if any(needs):
        end_orphans(Home(user_home()))
    queues = has_to_queue(needs, here, cfg)
    reservation = None if queues else here.take(needs)
    if reservation is None and (queues or (not cfg.get(NO_WAIT) and can_ever_run(needs, here))):
        return _ticket(app_id, at, needs, here, cfg, per_role, ports)
    return reservation


def has_to_queue(needs: Needs, here: Capacity, cfg: RunOptions) -> bool:
    """Returns True if a job must go through the queue although its resources may be free.

    Other jobs wait for some of these already, or the machine has limits for users.

    Args:
        needs: the resources that it reserves.
        here: the resources of this machine.
        cfg: the run options.
    """
    if cfg.get(NO_WAIT) or not can_ever_run(needs, here):
        return False
    if quotas.load():
        return True
    mine = {use.gpu.lease for use in here.gpus}.union(here.cpus, here.memory)
    return bool(keepers.names()) and any(
        not mine.isdisjoint(wanted.names)
        for waiter in keepers.survey()
        for wanted in waiter.wanted
        if wanted.amount
    )


def can_ever_run(needs: Needs, here: Capacity) -> bool:
    """Returns True if this machine has the resources, free or not."""
    return (
        needs.gpus <= len(here.gpus)
        and needs.cpus <= len(here.cpus)
        and (not needs.memory or machine.units(needs.memory) <= len(here.memory))
    )


def _ticket(
    app_id: str,
    at: float,
    needs: Needs,
    here: Capacity,
    cfg: RunOptions,
    per_role: Iterable[tuple[str, int]],
    ports: Iterable[str],
) -> Ticket:
    """Returns the ticket of a job, from the arguments of :func:`take_or_wait`."""
    limit = LimitRule.of(cfg)
    priority = cfg.get(PRIORITY)
    umask = os.umask(0o077)
    os.umask(umask)
    return Ticket(
        app_id=app_id,
        at=at,
        gpus=needs.gpus,
        cpus=(here.cpus, needs.cpus),
        memory=(here.memory, machine.units(needs.memory) if needs.memory else 0),
        visible=tuple((use.gpu.lease, use.gpu.name, use.gpu.number) for use in here.gpus),
        per_role=tuple(per_role),
        ports=tuple(dict.fromkeys(ports)),
        priority=max(-MOST_PRIORITY, min(MOST_PRIORITY, priority)) if isinstance(priority, int) else 0,
        limit=None if limit.limit is None or limit.requeue else limit.limit,
        boot_id=processes.boot_id(),
        cwd=str(Path.cwd()),
        umask=umask,
        place_at=processes.uptime(),
    )


def fill(folder: Path, mine: Ticket, env: Mapping[str, str]) -> None:
    """Writes a ticket, and the environment for the start of its job, into the folder of a record."""
    mine.save(JobPaths(folder))
    ticket.save_origin(JobPaths(folder).origin, dict(env))


def enqueue(home: Home, app_id: str) -> list[str]:
    """Notifies the keeper of a recorded job.

    Returns:
        Notes for the user: the reason why it waits. Without a keeper, the next command for it starts one.
    """
    notes: list[str] = []
    with as_note(notes, f"it waits, but its resources are not watched until torchx wait {app_id}"):
        ticket.mark(home, home.job(app_id))
        launch.wake(home, home.job(app_id))
    with as_note(notes, "why it waits is unknown"):
        paths = home.job(app_id)
        view = load(paths)
        reason = reasons.reason(view, paths)
        if reason not in ("", reasons.UNKNOWN):
            notes.append(reason)
            with contextlib.closing(EventLog(paths.events, Clock(view.seen_at))) as log:
                log.add("waiting", msg=reason)
    return notes
