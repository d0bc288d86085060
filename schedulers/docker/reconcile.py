"""Records the ends of applications in containers, and replaces their supervisors that have died."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress

from torchx.errors import StateError
from torchx.jobs import ended
from torchx.jobs.ended import EndedJob
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.view import JobView, load
from torchx.machine import locks
from torchx.schedulers.docker import folder, unstarted
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import containers_of, with_late_oom
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.status import ENGINE_TIMES, describe
from torchx.schedulers.docker.supervisor_launch import lacks_supervisor, start_supervisor
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.observation import CANCELLED, GONE, REMOVED
from torchx.specs.status import EndCause, is_terminal


def reconcile_app(engine: Engine, app_id: str) -> None:
    """Continues an application whose keeper, start or supervisor on this machine was killed.

    Raises:
        StateError: its record is damaged, or the engine does not answer.
    """
    submitted = folder.find(engine.address, app_id)
    if submitted is not None and submitted.is_unstarted:
        unstarted.reconcile(engine, submitted)
    elif containers := containers_of(engine, app_id):
        if submitted is not None and submitted.view.has_ended:  # the list of ended jobs lacks it
            record_end(engine, submitted.paths, containers)
        else:
            reconcile(engine, containers)


def reconcile(engine: Engine, containers: Sequence[Container]) -> None:
    """Starts a supervisor for an application that has lost its own on this machine, or records its end.

    Args:
        engine: the engine.
        containers: its containers.
    """
    if not lacks_supervisor(engine, containers):
        return
    app_id = containers[0].app_id
    paths = folder.own_folder(app_id)
    if paths is None or replay(job_of(containers), containers).end is None:
        start_supervisor(app_id)
        return
    with suppress(OSError):  # it was just removed
        held = locks.acquire(paths.lock)
        if held is not None:
            try:
                record_end(engine, paths, containers)
            finally:
                os.close(held)


def record_end(engine: Engine, paths: JobPaths, containers: Sequence[Container]) -> None:
    """Records the end of an application, if it has ended. A recorded end stays.

    Args:
        engine: the engine.
        paths: its folder, whose lock the caller holds.
        containers: its containers.
    """
    with suppress(OSError, StateError):  # a full disk: the next command records it
        containers = with_late_oom(engine, containers)
        status = engine.clock.here(describe(containers, engine.clock.now()), ENGINE_TIMES)
        view = load(paths)
        if not is_terminal(status.state) or status.ended_at is None:
            return
        if not view.has_ended:
            facts = {"state": status.state.name, "msg": status.msg, "cause": status.cause}
            _note(view, paths, "end", t=status.ended_at.timestamp(), first=_first(view, status), **facts)
        ended.finish(load(paths), paths, _entry(view.record, row_of(status)))


def record_removal(paths: JobPaths, *, cancelled: bool) -> None:
    """Records the end of an application whose containers were all removed while its supervisor watched them.

    Args:
        paths: its folder, whose lock the caller holds.
        cancelled: whether it was cancelled before.
    """
    with suppress(OSError, StateError):
        view = load(paths)
        if view.has_ended:
            return
        last = [each.attempts[-1:] for each in view.replicas]
        removed = [n for n, attempts in enumerate(last) if attempts and attempts[0].ended_at is None]
        for n in removed:
            number = view.replicas[n].current
            _note(view, paths, "exit", r=n, a=number, msg=REMOVED, cause=EndCause.REMOVED)
        if cancelled:
            _note(view, paths, "end", state="CANCELLED", msg=CANCELLED)
        else:
            first = next(((n, view.replicas[n].current) for n in removed), None)
            _note(view, paths, "end", state="FAILED", msg=GONE, cause=EndCause.REMOVED, first=first)
        ended.finish(load(paths), paths)


def _note(view: JobView, paths: JobPaths, event: str, **facts: object) -> None:
    with closing(EventLog(paths.events, Clock(view.seen_at), paths.reserve)) as log:
        log.add(event, **facts)


def _first(view: JobView, status: DescribeAppResponse) -> tuple[int, int] | None:
    """Returns the ordinal and the attempt of the failure that ended an application."""
    failure = status.first_failure
    if failure is None:
        return None
    for ordinal, replica in enumerate(view.replicas):
        if (replica.role, replica.id) == (failure.role, failure.replica):
            return ordinal, failure.attempt
    return None


def _entry(record: JobRecord, row: ListAppResponse) -> EndedJob:
    """Returns the entry in the list of ended jobs for a row."""
    return EndedJob(
        app_id=record.app_id,
        scheduler=record.scheduler,
        session=record.session,
        name=row.name,
        state=row.state.name,
        submitted_at=record.submitted_at,
        started_at=None if row.started_at is None else row.started_at.timestamp(),
        ended_at=None if row.ended_at is None else row.ended_at.timestamp(),
        exit_code=row.exit_code,
        msg=row.msg,
        tags=row.tags or None,
        engine=record.engine,
        run=row.run,
    )
