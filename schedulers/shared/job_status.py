"""The observation of a job from its record and its events, on this machine and in containers."""

from __future__ import annotations

import time
from dataclasses import replace

from torchx.errors import TorchxError
from torchx.jobs.ended import EndedJob
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import damaged
from torchx.jobs.view import AttemptView, JobView
from torchx.lazy import lazy_imports
from torchx.printable import joined
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.observation import Observation, Replica, Whole
from torchx.scheduling.responses import local_time
from torchx.specs.status import AppState, AttemptStatus, Reason

with lazy_imports:
    from torchx.queue import reasons
    from torchx.scheduling import stalls
    from torchx.specs import serialize


def observe(view: JobView, paths: JobPaths, host: str = "") -> Observation:
    """Returns the observation of a job.

    Args:
        view: its state.
        paths: its record.
        host: the machine of its replicas.
    """
    record, step = view.record, view.clock_step
    services = {role.name for role in record.roles if role.service is not None}
    replicas = [
        Replica(
            replica.role,
            replica.id,
            [_attempt(attempt, step) for attempt in replica.attempts],
            host=host,
            max_attempts=replica.max_retries + 1,
            ready=replica.ready if replica.role in services else None,
        )
        for replica in view.replicas
    ]
    return Observation(
        record.app_id,
        record.name,
        local_time(record.submitted_at, step),
        record.cfg,
        record.app.get("metadata"),
        Whole.of(AppState[view.state], Reason(view.msg or waiting(view, paths), view.cause)),
        replicas,
        view.failure,
        local_time(view.started_at, step),
        local_time(view.ended_at),
        view.restarts,
        view.run,
        _stall(view),
    )


def with_application(status: DescribeAppResponse, view: JobView, paths: JobPaths) -> DescribeAppResponse:
    """Returns the status of a job with the roles and the metadata of its application.

    Raises:
        StateError: its record has no application.
    """
    try:
        app = serialize.app_from_dict(view.record.app)
    except (TorchxError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(paths.record, "`app` is not an application") from error
    return replace(status, roles=app.roles, metadata=app.metadata)


def waiting(view: JobView, paths: JobPaths) -> str:
    """Returns the reason why a job has not started; empty for one that has a supervisor."""
    if view.supervisor is not None or view.has_ended:
        return ""
    return reasons.reason(view, paths)


def row_of_ended(job: EndedJob, step: float = 0.0) -> ListAppResponse:
    """Returns the row of a job by its entry in the list of ended jobs.

    Args:
        job: the entry.
        step: seconds by which the system clock was set forward since the job started.
    """
    return ListAppResponse(
        app_id=job.app_id,
        state=AppState.__members__.get(job.state, AppState.UNKNOWN),
        app_handle=f"{job.scheduler}://{job.session}/{job.app_id}",
        name=job.name,
        submitted_at=local_time(job.submitted_at, step),
        started_at=local_time(job.started_at, step),
        ended_at=local_time(job.ended_at),
        exit_code=job.exit_code,
        msg=job.msg,
        tags=job.tags or {},
        run=job.run,
    )


def _stall(view: JobView) -> str:
    """Returns the message about a job that makes no progress; empty for others."""
    if view.stalled is None:
        return ""
    since, last = view.stalled
    return stalls.stalled_for(since + view.clock_step, last, time.time())


def _attempt(attempt: AttemptView, step: float) -> AttemptStatus:
    return AttemptStatus(
        number=attempt.number,
        state=AppState[attempt.state],
        exit_code=attempt.exit_code,
        signal=attempt.signal,
        started_at=local_time(attempt.started_at, step),
        ended_at=local_time(attempt.ended_at, step),
        pid=attempt.process.pid if attempt.process else None,
        msg=joined(attempt.msg, attempt.stopped),
        ready_at=local_time(attempt.ready_at, step),
        cause=attempt.cause,
        run=attempt.run,
    )
