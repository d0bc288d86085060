"""The observation of an application, and the one function that makes its description.

An engine reads its own facts: processes, containers, files, objects. It converts them to an
:class:`Observation`, which has no type of an engine. :func:`decide` chooses the state of the application, and
:func:`describe` everything else, in the same way for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.exit_codes import read_error_file
from torchx.scheduling.responses import DescribeAppResponse
from torchx.services import ENDED_WHILE_NEEDED
from torchx.specs.app_metadata import own_entries
from torchx.specs.status import (
    NONE,
    AppState,
    AttemptStatus,
    EndCause,
    FirstFailure,
    Reason,
    ReplicaStatus,
    RoleStatus,
    failure_of,
    is_terminal,
)

if TYPE_CHECKING:
    from torchx.specs.run_options import OptionValues

CANCELLED, CANCELLING = "cancelled", "it is being cancelled"
OTHER_FAILED = "another replica failed"
STARTING, INTERRUPTED = "its containers are being created", "its start was interrupted"
REMOVED, GONE = "its container was removed", "all its containers were removed"
"""The reasons for states and ends in several engines."""


@dataclass(frozen=True)
class Replica:
    """The observation of a replica.

    Attributes:
        role: the name of its role.
        id: its id within the role, from 0.
        attempts: its attempts, the current one last.
        state: its state, if its last attempt does not show it.
        host: its machine; empty if unknown.
        max_attempts: the maximum number of attempts.
        ready: whether it is ready, as a replica of a service; None in an ordinary role.
        required: whether the application succeeds only if this replica does, unless it is one of a service.
        error_file: its error file, as JSON text, if the engine has it.
    """

    role: str
    id: int
    attempts: Sequence[AttemptStatus] = ()
    state: AppState | None = None
    host: str = ""
    max_attempts: int = 1
    ready: bool | None = None
    required: bool = True
    error_file: str = NONE


class Phase(Enum):
    """The phase of an application before its end, with its state.

    Attributes:
        ACCEPTED: the engine knows it, and has given it no place.
        WAITING: it waits for resources or for its preparation.
        RUNNING: it has started.
        UNKNOWN: the engine reports no known phase.
    """

    ACCEPTED = AppState.SUBMITTED
    WAITING = AppState.PENDING
    RUNNING = AppState.RUNNING
    UNKNOWN = AppState.UNKNOWN


@dataclass(frozen=True)
class Whole:
    """The facts that decide the state of an application.

    Attributes:
        phase: its phase before the end.
        end: the end that its engine, or the rules of retries, have proved.
        cancelled: whether it was cancelled before another end.
        live: whether a part of it may still run, or start, after an end or a cancellation.
        reason: the reason for the phase or the end.
    """

    phase: Phase = Phase.UNKNOWN
    end: AppState | None = None
    cancelled: bool = False
    live: bool = False
    reason: Reason = field(default_factory=Reason)

    @classmethod
    def of(cls, state: AppState, reason: Reason) -> Whole:
        """Returns the facts from an engine that reports the state itself."""
        if is_terminal(state):
            return cls(end=state, reason=reason)
        return cls(Phase(state), reason=reason)


def decide(whole: Whole) -> tuple[AppState, Reason]:
    """Returns the state of an application and its reason.

    An end counts once no part runs any more; a proved end counts more than a cancellation.
    """
    end = whole.end or (AppState.CANCELLED if whole.cancelled else None)
    state, text = end or whole.phase.value, ""
    if end is not None and whole.live:
        state = AppState.RUNNING
    if end is AppState.CANCELLED:
        text = CANCELLING if whole.live else CANCELLED
    return state, whole.reason._replace(text=whole.reason.text or text)


@dataclass(frozen=True)
class Observation:
    """The observation of an application.

    Attributes:
        app_id: the id, as in its handle.
        name: its name.
        submitted_at: the time of its submission.
        cfg: its run options.
        metadata: its metadata.
        whole: the facts that decide its state.
        replicas: its replicas, in the order of the roles.
        first_failure: the replica that failed first.
        started_at: the start of its first replica.
        ended_at: the end of its last replica; ignored before its end.
        restarts: the number of its restarts; -1 if unknown.
        run: the number of its run, from 1.
        stall: the message about its missing progress, which counts until its end.
    """

    app_id: str
    name: str
    submitted_at: datetime | None
    cfg: OptionValues
    metadata: object
    whole: Whole
    replicas: Sequence[Replica] = ()
    first_failure: FirstFailure | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    restarts: int = -1
    run: int = 1
    stall: str = ""


def describe(seen: Observation, folder_of: Callable[[str, int], Path] | None = None) -> DescribeAppResponse:
    """Returns the description of an application, without its roles.

    Args:
        seen: the application.
        folder_of: returns the folder of a replica for its error file, if it is on this machine.
    """
    current, reason = decide(seen.whole)
    over, first = is_terminal(current), seen.first_failure
    if seen.stall and not over:
        reason = Reason(reason.text or seen.stall, EndCause.STALLED)
    roles: dict[str, RoleStatus] = {}
    app_error = NONE
    for replica in seen.replicas:
        state = _state_of(replica, over)
        error = replica.error_file
        if folder_of is not None and state is AppState.FAILED:
            error = read_error_file(folder_of(replica.role, replica.id)) or NONE
        if first is not None and (first.role, first.replica) == (replica.role, replica.id):
            app_error = error
        status = ReplicaStatus(
            replica.id,
            state,
            replica.role,
            replica.host,
            error,
            attempts=list(replica.attempts),
            max_attempts=replica.max_attempts,
            required=replica.required and replica.ready is None,
        )
        role = roles.setdefault(replica.role, RoleStatus(replica.role, []))
        role.replicas.append(status)
        if replica.ready is not None:
            role.ready = (role.ready or 0) + replica.ready
    return DescribeAppResponse(
        app_id=seen.app_id,
        state=current,
        num_restarts=seen.restarts,
        run=seen.run,
        msg=reason.text,
        cause=reason.cause,
        structured_error_msg=app_error,
        roles_statuses=list(roles.values()),
        name=seen.name,
        submitted_at=seen.submitted_at,
        started_at=seen.started_at,
        ended_at=seen.ended_at if over else None,
        first_failure=first,
        cfg=seen.cfg,
        metadata=own_entries(seen.metadata),
    )


def failure_in(replica: Replica) -> FirstFailure:
    """Returns the failure of the replica that failed first; it was removed if it has no attempt."""
    return failure_of(replica.role, replica.id, [removed(1), *replica.attempts][-1])


def removed(number: int) -> AttemptStatus:
    """Returns an attempt that has failed, since the engine has removed it."""
    return AttemptStatus(number, AppState.FAILED, msg=REMOVED, cause=EndCause.REMOVED)


def first_failure(replicas: Iterable[Replica], common: Collection[EndCause] = ()) -> FirstFailure | None:
    """Returns the failure of the replica whose last attempt failed first; None without one.

    Args:
        replicas: the replicas whose failures count, with their states.
        common: the causes that end all replicas together: another failure came before.
    """
    ends = [(r, r.attempts[-1]) for r in replicas if r.state is AppState.FAILED and r.attempts]
    # the rules of retries were applied to the first failure
    keys = [(end.cause in common, not end.refused, or_zero(end.ended_at)) for _, end in ends]
    if not ends:
        return None
    return failure_in(ends[keys.index(min(keys))][0])


def or_zero(at: datetime | None) -> datetime:
    """Returns a time, or the epoch for None."""
    return at or datetime.fromtimestamp(0, timezone.utc)


def while_needed(attempt: AttemptStatus) -> AttemptStatus:
    """Returns the attempt of a service that ended by itself while it was needed: it has failed."""
    if attempt.exit_code == 0:
        attempt = replace(attempt, cause=EndCause.SERVICE_ENDED)
    return replace(attempt, state=AppState.FAILED, msg=attempt.msg or ENDED_WHILE_NEEDED)


def _state_of(replica: Replica, over: bool) -> AppState:
    """Returns the state of a replica; without an attempt it was cancelled if its application has ended."""
    if replica.state is not None:
        return replica.state
    if replica.attempts:
        return replica.attempts[-1].state
    if over:
        return AppState.CANCELLED
    return AppState.PENDING
