"""Converts the state of an application in containers to the types of the scheduler interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torchx.errors import StateError, UsageError
from torchx.jobs import ended
from torchx.jobs.catalog import catalog
from torchx.jobs.paths import Home, user_home
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.machine.cgroups import cgroup_of
from torchx.machine.processes import age, look_up
from torchx.printable import joined
from torchx.schedulers.docker import folder, unstarted
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.folder import Submitted
from torchx.schedulers.docker.journal import has_ended, merged
from torchx.schedulers.docker.lookup import (
    containers_of,
    find_containers,
    owner_of,
    with_late_oom,
)
from torchx.schedulers.docker.marks import (
    CANCELLED,
    ENDED,
    EXPIRED,
    FAILED,
    FORCED,
    STALLED,
    STOPPED,
    UNNEEDED,
    decoded,
)
from torchx.schedulers.docker.record import full_data
from torchx.schedulers.docker.replay import Progress, replay
from torchx.schedulers.docker.rules.job import Job, RoleFacts, job_of
from torchx.schedulers.docker.rules.refusals import refusal
from torchx.schedulers.docker.supervisor_launch import lacks_supervisor
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.clock import TIMES
from torchx.schedulers.shared.listing import newest_first, row_of
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.failure_causes import NOT_RUN
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.observation import Observation, Phase, Replica, Whole
from torchx.scheduling.responses import local_time
from torchx.services import NO_LONGER_NEEDED
from torchx.specs.serialize import app_from_dict
from torchx.specs.status import (
    AppState,
    AttemptStatus,
    EndCause,
    Reason,
)
from torchx.supervisor.policy import REQUEUED

with lazy_imports:
    from torchx.schedulers.docker import probes
    from torchx.schedulers.shared import job_status
    from torchx.supervisor.services import watch

STARTED_WITHIN = 60.0
"""Seconds after which containers that have not started count as an interrupted start."""

ENGINE_TIMES = TIMES[:-1]
"""The times of a status by the clock of the engine; the machine of the submission gives its time."""
CLOCK_SET = 60.0
"""Minimum seconds between the starts of a container and of its process after a change of the clock."""

_ENDS = {
    CANCELLED: Reason(observation.CANCELLED),
    STOPPED: Reason(observation.OTHER_FAILED),
    FAILED: Reason("it could not be restarted", EndCause.NOT_STARTED),
    EXPIRED: Reason("time limit", EndCause.TIME_LIMIT),
    STALLED: Reason("stalled for longer than its limit", EndCause.STALLED),
    UNNEEDED: Reason(NO_LONGER_NEEDED),
}
"""The reasons for the ends of containers by their marks."""


def describe_app(engine: Engine, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application with its roles, or None if it is unknown.

    Raises:
        StateError: its record is damaged.
    """
    return _described(engine, app_id, describe_all, unstarted.describe_app)


def glance(engine: Engine, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application without its roles, or None if it is unknown.

    Raises:
        StateError: its record is damaged.
    """
    return _described(engine, app_id, describe, unstarted.glance)


def _described(
    engine: Engine,
    app_id: str,
    status_of: Callable[[Sequence[Container], float], DescribeAppResponse],
    by_folder: Callable[[Submitted], DescribeAppResponse],
) -> DescribeAppResponse | None:
    submitted = folder.find(engine.address, app_id)
    if submitted is not None and submitted.is_unstarted:
        return by_folder(submitted)
    containers = with_late_oom(engine, containers_of(engine, app_id))
    if containers:
        status = engine.clock.here(status_of(containers, engine.clock.now()), ENGINE_TIMES)
        return replace(status, needs_reconcile=lacks_supervisor(engine, containers))
    if submitted is not None:
        return by_folder(submitted)
    return None


def describe_native(engine: Engine, app_id: str) -> list[Any] | None:
    """Returns the engine's description of each container of an application, or None if it is unknown."""
    present = [c for c in containers_of(engine, app_id) if not c.removed]
    return [engine.call("GET", f"/containers/{c.id}/json") for c in present] or None


def list_apps(engine: Engine) -> list[ListAppResponse]:
    """Returns all applications of the engine, newest first.

    The containers of those that were submitted here and have ended are not inspected.
    """
    rows = {row.app_id: row for row in _ended_rows(engine)}
    # before the containers: one that starts meanwhile is in both, not in none
    unlisted = dict(folder.find_unlisted(engine.address))
    for app_id, submitted in unlisted.items():
        if isinstance(submitted, StateError) or submitted.is_unstarted:
            rows[app_id] = unstarted.row(app_id, submitted)
    clock = engine.clock
    for app_id, containers in find_containers(engine, tolerant=True, without=rows.keys()).items():
        status = clock.here(describe(containers, clock.now()), ENGINE_TIMES)
        status.needs_reconcile = lacks_supervisor(engine, containers) or has_ended(app_id)
        rows[app_id] = row_of(status, is_own=owner.is_own(owner_of(containers)))
    for app_id in unlisted.keys() - rows.keys():  # all its containers were removed
        rows[app_id] = unstarted.row(app_id, unlisted[app_id])
    return newest_first(rows.values())


def _ended_rows(engine: Engine) -> Iterator[ListAppResponse]:
    """Yields the applications of an engine that this user has submitted here, and that have ended."""
    home, identity = Home(user_home()), folder.identity_of(engine.address)
    listed = catalog(home)
    for name in listed.app_ids & listed.lines.keys():
        if folder.SCHEDULER.encode() not in listed.lines[name]:
            continue
        entry = ended.parse(listed.lines[name])
        if entry is not None and (entry.scheduler, entry.engine) == (folder.SCHEDULER, identity):
            yield job_status.row_of_ended(entry)


def exists(engine: Engine, app_id: str) -> bool:
    """Returns True if an application was submitted here, or the engine has containers of it."""
    return folder.is_known(engine.address, app_id, unreadable=True) or bool(containers_of(engine, app_id))


def describe(containers: Sequence[Container], now: float | None = None) -> DescribeAppResponse:
    """Returns the status of an application, without its roles.

    Args:
        containers: all its containers, at least one.
        now: seconds since the epoch (default: the current time).
    """
    app_id = containers[0].app_id
    has_end = has_ended(app_id)  # before the ends of its containers, which are recorded earlier
    damage = damage_of(containers)
    if damage:
        oldest = local_time(min(c.created for c in containers) or None)
        return DescribeAppResponse(app_id, AppState.UNKNOWN, msg=damage, submitted_at=oldest)
    if now is None:
        now = time.time()
    containers = [_by_boot(container, now) for container in merged(app_id, list(containers))]
    job = job_of(containers)
    if job.has_services:
        job = probes.shown(job, containers)
    progress = replay(job, containers)
    replicas = [_replica(progress, ordinal) for ordinal in range(len(job.members))]
    whole = _whole(progress, containers, now)
    stalls = folder.stalls_of(app_id, job.cfg)
    if whole.end is AppState.CANCELLED and stalls.cancelled:
        reason = Reason(f"cancelled, as it was {stalls.cancelled}", EndCause.STALLED)
        whole = replace(whole, reason=reason)
    first_failed = progress.failed
    ended_at = max(filter(None, (c.finished for c in containers)), default=None)
    end = folder.view_of(app_id) if has_end or stalls.reports else None
    if end and has_end:
        whole, ended_at = Whole.of(AppState[end.state], Reason(end.msg, end.cause)), end.ended_at
        first_failed = None if end.first_failure is None else end.first_failure[0]
    first = None
    if first_failed is not None:
        failed = replicas[first_failed]
        newest = progress.newest(first_failed)
        if first_failed in progress.lost and not (newest and newest.exit_code):
            failed = replace(failed, attempts=[observation.removed(progress.expected[first_failed])])
        first = observation.failure_in(failed)
    created = [c.created for c in containers]
    app = job.data.get("app", {})
    seen = Observation(
        app_id,
        app.get("name", ""),
        local_time(job.data.get("submitted_at") or min(created)),
        dict(job.cfg),
        app.get("metadata"),
        whole,
        replicas,
        first,
        local_time(min(filter(None, map(_started, containers)), default=None)),
        local_time(ended_at or max(created)),
        progress.restarts,
        progress.run,
        stalls.message,
    )
    report_dir = None
    if stalls.reports and end is not None:
        report_dir = end.record.log_dir
    return replace(
        observation.describe(seen), stalls=stalls.reports, report_dir=report_dir, steps_dir=stalls.folder
    )


def _by_boot(container: Container, now: float) -> Container:
    """Returns a container with its start by the clock of now, which may have been set since it started.

    Only those that run on this machine change.
    """
    entry = None
    if container.live and container.pid:
        entry = look_up(container.pid)
    if entry is None or container.started is None or cgroup_of(container.pid, container.id) is None:
        return container
    started = now - age(entry.process)
    if abs(started - container.started) > CLOCK_SET:
        return replace(container, started=started)
    return container


def describe_all(containers: Sequence[Container], now: float | None = None) -> DescribeAppResponse:
    """Returns the status of an application, its roles, its metadata and all its options.

    Args:
        containers: all its containers, at least one.
        now: seconds since the epoch (default: the current time).
    """
    status = describe(containers, now)
    if damage_of(containers):
        return status
    job = job_of(containers)
    data = full_data(job.app_id, job.data, containers) if job.data else {}
    try:
        app = app_from_dict(data.get("app") or _from_containers(job, containers))
    except UsageError:
        app = app_from_dict(_from_containers(job, containers))
    return replace(status, roles=app.roles, metadata=app.metadata, cfg=dict(data.get("cfg") or job.cfg))


def _from_containers(job: Job, containers: Sequence[Container]) -> Data:
    """Returns the data of an application as far as its containers show it without the label JOB."""
    images = {c.role: c.image for c in containers}
    roles = [{"name": r.name, "image": images.get(r.name, ""), "num_replicas": r.replicas} for r in job.roles]
    return {"name": job.app_id, "roles": roles}


def _whole(progress: Progress, containers: Sequence[Container], now: float) -> Whole:
    if progress.end is not None:
        if progress.end.state == "FAILED" or (progress.gang.first_failure is None and _is_stopped(progress)):
            return Whole(end=AppState.FAILED, reason=_why_failed(progress))
        return Whole(end=AppState[progress.end.state])
    if progress.cancelled:
        return Whole(cancelled=True, live=True)
    if any(c.started for c in containers):
        waiting = progress.starts and not any(c.live for c in containers)
        return Whole(Phase.RUNNING, reason=Reason("waiting for its next attempt" if waiting else ""))
    if now - max(c.created for c in containers) > STARTED_WITHIN:
        return Whole(end=AppState.FAILED, reason=Reason(observation.INTERRUPTED, EndCause.NOT_STARTED))
    return Whole(Phase.WAITING, reason=Reason(observation.STARTING))


def _is_stopped(progress: Progress) -> bool:
    """Returns True if a replica was stopped because of a failure whose container was removed."""
    return not progress.cancelled and any(mine and mine[-1].mark == STOPPED for mine in progress.replicas)


def _why_failed(progress: Progress) -> Reason:
    """Returns why an application failed, if no replica shows it."""
    if progress.gang.expired:
        return Reason(progress.job.limits.reached(progress.run), EndCause.TIME_LIMIT)
    first = progress.failed
    if first is None:
        return Reason("a replica failed, and its container was removed", EndCause.REMOVED)
    role, replica = progress.job.members[first]
    if first in progress.lost:
        return Reason(f"the container of {role.name}/{replica} was removed", EndCause.REMOVED)
    for number in sorted(progress.lost):
        if progress.newest(number) is not None:
            role, replica = progress.job.members[number]
            return Reason(f"not restarted: the container of {role.name}/{replica} was removed")
    newest = progress.newest(first)
    if newest is not None and newest.error:
        return Reason(f"{role.name}/{replica} could not be started: {newest.error}", EndCause.NOT_STARTED)
    return Reason()


def _replica(progress: Progress, ordinal: int) -> Replica:
    role, replica = progress.job.members[ordinal]
    mine = progress.replicas[ordinal]
    # a container that waited for other roles has had no attempt
    limits = progress.job.limits
    attempts = [
        _attempt(c, role, limits)
        for c in mine
        if c.started or c.finished or c.error or (c.mark and not role.after)
    ]
    if attempts and ordinal in progress.needed:
        attempts[-1] = observation.while_needed(attempts[-1])
    state = None
    if ordinal in progress.lost and not attempts:
        state = AppState.UNKNOWN
    ready = None
    if role.service is not None:
        ready = progress.is_ready(ordinal)
    host = ""
    if mine:
        host = mine[-1].host
    return Replica(role.name, replica, attempts, state, host, role.max_retries + 1, ready)


def _attempt(c: Container, role: RoleFacts, limits: LimitRule) -> AttemptStatus:
    ended = c.finished is not None or c.status not in ("running", "paused")
    # a program that ends orderly when it is ended as a failed one has failed
    signal = c.signal or ("SIGTERM" if c.was_forced and c.exit_code == 0 else None)
    reason = _reason_of(c, role)
    return AttemptStatus(
        # the engine counts a restart before it happens
        number=c.attempt + c.restarts - (1 if c.status == "restarting" else 0),
        state=_state_of(c),
        exit_code=None if signal else c.exit_code,
        signal=signal,
        started_at=local_time(c.started),
        ended_at=local_time(c.finished or c.created) if ended else None,
        msg=reason.text,
        ready_at=local_time(_ready_at(c, role)),
        cause=reason.cause,
        run=1 + c.retry.get("used", {}).get(REQUEUED, 0),
        noticed_at=local_time(_noticed_at(c, limits)),
    )


def _noticed_at(c: Container, limits: LimitRule) -> float | None:
    """Returns when the program of a container was notified of the end of its run; None if it was not."""
    at = max(c.ends_at - limits.notice, c.started or 0.0)
    if c.ends_at and limits.notice and c.started and (c.finished or time.time()) >= at:
        return at
    return None


def _ready_at(c: Container, role: RoleFacts) -> float | None:
    """Returns when the container of a service was ready; its engine may have another clock."""
    if role.service is None or c.started is None:
        return None
    if not role.service.ready:
        return c.started
    if c.ready_at is None:
        return None
    return max(c.ready_at, c.started)


def _state_of(c: Container) -> AppState:
    if c.status in ("running", "paused"):
        return AppState.RUNNING
    if c.mark in ENDED:
        return AppState.CANCELLED
    succeeded = c.exit_code == 0 and not c.error and not c.was_forced
    if succeeded:
        return AppState.SUCCEEDED
    return AppState.FAILED


def _reason_of(c: Container, role: RoleFacts) -> Reason:
    """Returns the reason for the state of a container: that of the engine, or else that of its mark."""
    if c.unready_answer is not None:
        text = ""
        if role.service is not None:
            text = watch.not_ready(role.service, c.unready_answer)
        return Reason(text, EndCause.NOT_READY)
    if c.status == "paused":
        return Reason("paused")
    reason = Reason()
    if c.status not in ("running", "restarting"):
        reason = _ENDS.get(c.mark, reason)
        if c.mark.startswith(FORCED):
            reason = Reason(decoded(c.mark.removeprefix(FORCED)))
    if c.oom and c.exit_code:
        limit = f": its limit is {c.memory / (1 << 20):,.0f} MiB" if c.memory else ""
        reason = Reason(f"out of memory{limit}", EndCause.OUT_OF_MEMORY)
    elif c.error and c.exit_code in NOT_RUN:
        reason = reason._replace(cause=EndCause.MISSING_PROGRAM)
    return reason._replace(text=c.error or joined(reason.text, refusal(c)))


def _started(c: Container) -> float | None:
    # the engine only keeps the last start of a restarted container
    if c.started is not None and c.restarts:
        return c.created
    return c.started
