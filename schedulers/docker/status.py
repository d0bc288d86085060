"""An application in containers, told in the words of the scheduler interface."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from torchx.errors import UsageError
from torchx.schedulers.docker.containers import CANCELLED, FAILED, STOPPED, Container, damage_of
from torchx.schedulers.docker.record import whole
from torchx.schedulers.docker.replay import Job, RoleFacts, Story, job_of, tell
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.specs.serialize import app_from_dict
from torchx.specs.status import AppState, AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus

STARTED_WITHIN = 60.0
"""Seconds after which containers that never started are what is left of an interrupted start."""

INTERRUPTED = "its start was interrupted"
_WHY = {CANCELLED: "cancelled", STOPPED: "another replica failed", FAILED: "it could not be started again"}


def describe(containers: Sequence[Container], now: float | None = None) -> DescribeAppResponse:
    """Returns how an application fares; what it is, is left out.

    Args:
        containers: all its containers, at least one.
        now: seconds since the epoch; the present unless told.
    """
    damage = damage_of(containers)
    if damage:
        created = _time(min(c.created for c in containers) or None)
        app_id = containers[0].app_id
        return DescribeAppResponse(app_id, AppState.UNKNOWN, msg=damage, submitted_at=created)
    story = tell(job_of(containers), containers)
    data = story.job.data
    state, msg = _state(story, containers, time.time() if now is None else now)
    over = state in (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)
    started = [at for c in containers if (at := _started(c)) is not None]
    finished = [c.finished for c in containers if c.finished is not None]
    roles = {role.name: RoleStatus(role.name, []) for role in story.job.roles}
    for ordinal, (role, replica) in enumerate(story.job.members):
        roles[role.name].replicas.append(_replica(story, ordinal, role, replica, over))
    first = _first_failure(story)
    return DescribeAppResponse(
        app_id=story.job.app_id,
        state=state,
        num_restarts=story.restarts,
        msg=msg,
        roles_statuses=list(roles.values()),
        name=data.get("app", {}).get("name", ""),
        submitted_at=_time(data.get("submitted_at") or min(c.created for c in containers)),
        started_at=_time(min(started, default=None)),
        ended_at=_time(max(finished, default=max(c.created for c in containers))) if over else None,
        first_failure=first,
        cfg=dict(story.job.cfg),
    )


def listed(containers: Sequence[Container]) -> ListAppResponse:
    """Returns the line of an application in a listing."""
    told = describe(containers)
    code = 0 if told.state is AppState.SUCCEEDED else None
    if told.state is AppState.FAILED and told.first_failure is not None:
        code = told.first_failure.result
    return ListAppResponse(
        app_id=told.app_id,
        state=told.state,
        name=told.name,
        submitted_at=told.submitted_at,
        started_at=told.started_at,
        ended_at=told.ended_at,
        exit_code=code,
        msg=told.msg,
    )


def describe_all(containers: Sequence[Container]) -> DescribeAppResponse:
    """Returns the status of an application, its roles, its metadata and all its options.

    Args:
        containers: all its containers, at least one.
    """
    status = describe(containers)
    if damage_of(containers):
        return status
    job = job_of(containers)
    data = whole(job.app_id, job.data, containers) if job.data else {}
    try:
        app = app_from_dict(data.get("app") or _seen(job, containers))
    except UsageError:
        app = app_from_dict(_seen(job, containers))
    return replace(status, roles=app.roles, metadata=app.metadata, cfg=dict(data.get("cfg") or job.cfg))


def _seen(job: Job, containers: Sequence[Container]) -> Mapping[str, Any]:
    """Returns what can be seen of an application that carries nothing that can be read."""
    images = {c.role: c.image for c in containers}
    roles = [{"name": r.name, "image": images.get(r.name, ""), "num_replicas": r.replicas} for r in job.roles]
    return {"name": job.app_id, "roles": roles}


def _state(story: Story, containers: Sequence[Container], now: float) -> tuple[AppState, str]:
    if story.end is not None:
        if story.end.state == "FAILED" or (story.gang.first_failure is None and _is_stopped(story)):
            return AppState.FAILED, _why_failed(story)
        return AppState[story.end.state], "cancelled" if story.end.state == "CANCELLED" else ""
    if story.cancelled:
        return AppState.RUNNING, "it is being cancelled"
    if any(c.started for c in containers):
        waiting = not any(c.live for c in containers)
        return AppState.RUNNING, "waits for its next attempt" if waiting and story.starts else ""
    if now - max(c.created for c in containers) > STARTED_WITHIN:
        return AppState.FAILED, INTERRUPTED
    return AppState.PENDING, "its containers are being made"


def _is_stopped(story: Story) -> bool:
    """Tells whether something was stopped for a failure that cannot be seen any more."""
    return not story.cancelled and any(mine and mine[-1].mark == STOPPED for mine in story.replicas)


def _why_failed(story: Story) -> str:
    first = story.end.first_failure if story.end else None
    if first is None:
        return "a replica failed whose container is gone"
    role, replica = story.job.members[first]
    if first in story.lost:
        return f"the container of {role.name}/{replica} is gone"
    newest = story.newest(first)
    if newest is not None and newest.error:
        return f"{role.name}/{replica} could not be started: {newest.error}"
    return ""


def _replica(story: Story, ordinal: int, role: RoleFacts, replica: int, over: bool) -> ReplicaStatus:
    mine = story.replicas[ordinal]
    attempts = [_attempt(c) for c in mine if c.started or c.error or c.mark]
    if attempts:
        state = attempts[-1].state
    elif ordinal in story.lost:
        state = AppState.UNKNOWN
    else:
        state = AppState.CANCELLED if over else AppState.PENDING
    return ReplicaStatus(
        id=replica,
        state=state,
        role=role.name,
        hostname=mine[-1].host if mine else "",
        attempts=attempts,
        max_attempts=role.max_retries + 1,
    )


def _attempt(c: Container) -> AttemptStatus:
    ended = c.finished is not None or c.status not in ("running", "paused")
    return AttemptStatus(
        # the engine counts a restart when it decides on it
        number=c.attempt + c.restarts - (1 if c.status == "restarting" else 0),
        state=_state_of(c),
        exit_code=None if c.signal else c.exit_code,
        signal=c.signal,
        started_at=_time(c.started),
        ended_at=_time(c.finished or c.created) if ended else None,
        msg=_message(c),
    )


def _state_of(c: Container) -> AppState:
    if c.status in ("running", "paused"):
        return AppState.RUNNING
    if c.mark in (CANCELLED, STOPPED):
        return AppState.CANCELLED
    return AppState.SUCCEEDED if c.exit_code == 0 and not c.error else AppState.FAILED


def _message(c: Container) -> str:
    if c.status == "paused":
        return "paused"
    if c.error:
        return c.error
    if c.oom and c.exit_code:
        limit = f": its limit is {c.memory / (1 << 20):,.0f} MB" if c.memory else ""
        return f"out of memory{limit}"
    return _WHY.get(c.mark, "") if c.status not in ("running", "restarting") else ""


def _first_failure(story: Story) -> FirstFailure | None:
    ordinal = story.end.first_failure if story.end else None
    if ordinal is None:
        return None
    role, replica = story.job.members[ordinal]
    newest = story.newest(ordinal)
    if newest is None:
        return FirstFailure(role.name, replica, 1, msg="its container was removed")
    attempt = _attempt(newest)
    return FirstFailure(role.name, replica, attempt.number, attempt.exit_code, attempt.signal, attempt.msg)


def _started(c: Container) -> float | None:
    # of a container that was restarted, only the last start is kept
    return c.created if c.started is not None and c.restarts else c.started


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, timezone.utc).astimezone()
