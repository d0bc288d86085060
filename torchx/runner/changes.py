"""Events of an application whose engine keeps no event log, from its descriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

from torchx.errors import TorchxError
from torchx.json_limits import Object, without_none
from torchx.printable import joined, memory_size
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.events import AppEvent, Readiness
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.measurement import AppUsage
from torchx.specs.status import (
    AppState,
    AttemptStatus,
    EndCause,
    ReplicaStatus,
    RoleStatus,
    code_of,
    is_terminal,
)
from torchx.stragglers.record import reports_in

Key = tuple[str, str, int | None, int | None]
"""Kind, role, replica, and attempt of an event."""

_WAITING = (AppState.SUBMITTED, AppState.PENDING)
_RAN = (AppState.RUNNING, AppState.SUCCEEDED, AppState.FAILED)
_BY_TIME = attrgetter("time")


def changes(
    describe: Callable[[], DescribeAppResponse | None], measure: Callable[[], AppUsage | None] | None = None
) -> Iterator[AppEvent | None]:
    """Yields the events of an application: the recorded ones, then changes between two descriptions.

    Yields None when all events of a description are known; the next one is then requested. Ends with the
    application, or when it is no longer known.

    Args:
        describe: returns the description of the application.
        measure: returns its measurements after its end.
    """
    clock, known = _Clock(), set[tuple[object, ...]]()
    while (described := describe()) is not None:
        numbers: dict[Key, int] = {}
        events = _events(described, clock)
        if measure is not None and events[-1].is_last:
            events[-1:-1] = _peak(measure, events[-1].time)
        for event in events:
            name = (event.kind, event.role, event.replica, event.attempt)
            numbers[name] = numbers.get(name, 0) + 1
            key = (*name, event.message if event.kind == "waiting" else numbers[name])
            if key in known:
                continue
            known.add(key)
            yield event
            if event.is_last:
                return
        clock.observing = True
        yield None


def _peak(measure: Callable[[], AppUsage | None], at: datetime) -> Iterator[AppEvent]:
    """Yields the event about the largest peak memory of a replica, if it was measured."""
    try:
        usage = measure()
    except (TorchxError, OSError):
        return  # the end is known without it
    if usage is None or "memory" in usage.current:
        return
    largest = usage.largest
    if largest is not None and (memory := largest.total.memory) is not None:
        source = (largest.role, largest.replica, largest.attempt)
        yield AppEvent(at, "measured", *source, f"peak memory {memory_size(memory)}", {"memory": memory})


class _Clock:
    """Times of events; those that the engine does not record are the times at which they were observed.

    Attributes:
        observing: whether a change happened since the previous description.
    """

    def __init__(self) -> None:
        self.observing = False
        self._times: dict[tuple[object, ...], tuple[datetime, str]] = {}

    def event(
        self,
        kind: str,
        recorded: datetime | None,
        earliest: datetime,
        source: tuple[str, int | None, int | None] = ("", None, None),
        message: str = "",
        details: Object | None = None,
    ) -> AppEvent:
        """Returns an event.

        Args:
            kind: its kind.
            recorded: the time that the engine reports.
            earliest: its time if it is unknown.
            source: its role, replica and attempt.
            message: its message.
            details: its details.
        """
        details = details or {}
        at = None
        if recorded is not None:
            at = recorded.astimezone()
        if at is None:
            now = datetime.now(timezone.utc).astimezone()
            if self.observing:
                first = (now, "observed")
            else:
                first = (earliest, "unknown")
            key = (kind, *source, message if kind == "waiting" else "")
            at, how = self._times.setdefault(key, first)
            details = {**details, "time": how}
        return AppEvent(at, kind, *source, message, details)


def _events(described: DescribeAppResponse, clock: _Clock) -> list[AppEvent]:
    """Returns all events that a description proves, in order of time."""
    since = described.submitted_at or described.started_at or described.ended_at
    begin = (since or datetime.now(timezone.utc)).astimezone()
    first = clock.event("submitted", described.submitted_at, begin, details={"name": described.name})
    events = [first]
    if described.state in _WAITING and described.msg:
        events.append(clock.event("waiting", None, first.time, message=str(described.msg)))
    events += _of_replicas(described, first.time, clock)
    reports = list(_of_stalls(described, first.time, clock))
    if reports:
        events = sorted([*events, *reports], key=_BY_TIME)
    if is_terminal(described.state):
        events += _of_end(described, max(events, key=_BY_TIME).time, clock)
    return events


def _of_replicas(described: DescribeAppResponse, begin: datetime, clock: _Clock) -> Iterator[AppEvent]:
    """Yields the events of runs and replicas, and when all replicas are ready."""
    replicas = described.replicas
    steps = [(event, -1, event.details["run"]) for event in _of_runs(described, begin, clock)]
    for ordinal, replica in enumerate(replicas):
        steps += [(event, ordinal, run) for event, run in _of_replica(replica, begin, clock)]
    steps.sort(key=lambda step: (step[2], step[0].time))  # a run begins when all of the one before has ended
    ready, current = Readiness(len(replicas)), 1
    services = {role.role for role in described.roles_statuses if _counts_when_ready(role)}
    for event, ordinal, run in steps:
        if event.kind == "started" and event.role in services:
            event = replace(event, details={**event.details, "service": True})
        yield event
        if run > current:
            ready, current = Readiness(len(replicas)), run
        if event.kind == "ended":
            ready.ended(ordinal, succeeded=event.details["state"] == "SUCCEEDED")
        elif event.kind == ("ready" if event.role in services else "started") and ready.started(ordinal):
            yield AppEvent(event.time, "ready", message=ready.message)


def reports_of(described: DescribeAppResponse) -> Sequence[Any]:
    """Returns the reports of stalls and of stragglers, which have the same attributes."""
    return (*described.stalls, *reports_in(described.steps_dir))


def _of_stalls(described: DescribeAppResponse, begin: datetime, clock: _Clock) -> Iterator[AppEvent]:
    """Yields the reports of stalled and slow replicas."""
    members = [(replica.role, replica.id) for replica in described.replicas]
    for report in reports_of(described):
        reported = datetime.fromtimestamp(report.at, timezone.utc)
        stalled: list[tuple[str, int | None, int | None]]
        stalled = [(*members[n], None) for n in report.replicas if n < len(members)]
        for source in stalled or [("", None, None)]:
            yield clock.event(report.kind, reported, begin, source, report.message)


def _of_end(described: DescribeAppResponse, last: datetime, clock: _Clock) -> Iterator[AppEvent]:
    """Yields the end of an application, not before its last other event."""
    at = None
    if described.ended_at is not None:
        at = max(described.ended_at.astimezone(), last)
    if described.state is AppState.CANCELLED:
        yield clock.event("cancelled", at, last)
    yield clock.event("ended", at, last, message=_message(described), details=_result(described))


def _of_runs(described: DescribeAppResponse, begin: datetime, clock: _Clock) -> Iterator[AppEvent]:
    """Yields the notices of runs, and the requeues."""
    attempts = [attempt for replica in described.replicas for attempt in replica.attempts]
    before: list[AttemptStatus] = []
    for number in sorted({attempt.run for attempt in attempts}):
        if before:
            ends = max((attempt.ended_at for attempt in before if attempt.ended_at), default=None)
            details = {"number": number - 1, "run": number, "allowed": _requeues(described)}
            message = f"run {number} begins after the {_why_again(before)}"
            yield clock.event("requeued", ends, begin, message=message, details=details)
        before = [attempt for attempt in attempts if attempt.run == number]
        noticed = min((attempt.noticed_at for attempt in before if attempt.noticed_at), default=None)
        if noticed is not None:
            yield clock.event(
                "notice", noticed, begin, message="before the time limit", details={"run": number}
            )


def _why_again(attempts: Sequence[AttemptStatus]) -> str:
    """Returns why a run has ended that another one follows."""
    causes = {attempt.cause for attempt in attempts}
    if EndCause.PREEMPTED in causes:
        return "preemption"
    if EndCause.NODE_LOST in causes:
        return "loss of a node"
    return "time limit"


def _requeues(described: DescribeAppResponse) -> int:
    """Returns the allowed number of requeues after the time limit; 0 without one, or for damaged options."""
    try:
        return LimitRule.of(described.cfg).requeues
    except ValueError:
        return 0


def _counts_when_ready(role: RoleStatus) -> bool:
    """Returns True for a service, unless it is ready and its engine records no time of it."""
    if role.ready is None:
        return False
    recorded = any(attempt.ready_at for replica in role.replicas for attempt in replica.attempts)
    return recorded or role.ready != len(role.replicas)


def _of_replica(replica: ReplicaStatus, begin: datetime, clock: _Clock) -> Iterator[tuple[AppEvent, int]]:
    """Yields the starts, ends and retries of a replica, and when it was ready, each with its run."""
    attempts = replica.attempts or [AttemptStatus(1, replica.state)]
    for attempt, later in zip(attempts, [*attempts[1:], None], strict=True):
        source = (replica.role, replica.id, attempt.number)
        if attempt.started_at is not None or attempt.state in _RAN:
            started = clock.event("started", attempt.started_at, begin, source)
            begin = started.time
            yield started, attempt.run
        if attempt.ready_at is not None:
            ready = clock.event("ready", max(attempt.ready_at.astimezone(), begin), begin, source)
            begin = ready.time
            yield ready, attempt.run
        if is_terminal(attempt.state) or later is not None:
            ended = clock.event("ended", attempt.ended_at, begin, source, *_end_of(attempt))
            begin = max(begin, ended.time)
            yield ended, attempt.run
        if later is None or later.run != attempt.run:  # another run begins after a requeue
            continue
        if attempt.state is not AppState.CANCELLED:
            # each requeue before it has begun an attempt, too
            most = max(replica.max_attempts + later.run - 1, later.number)
            message = f"attempt {later.number} of {most}"
            retry = later.number - later.run
            details = {"scope": "replica", "number": retry, "allowed": most - later.run}
            yield clock.event("retry", ended.time, begin, source, message, details), attempt.run


def _end_of(attempt: AttemptStatus) -> tuple[str, Object]:
    if attempt.exit_code is None:
        code = ""
    else:
        code = f"exit {attempt.exit_code}"
    values = {"exit_code": attempt.exit_code, "signal": attempt.signal, "reason": attempt.msg or None}
    details = {"state": attempt.state.name, **without_none(values)}
    return joined(attempt.signal or code, attempt.msg), details


def _message(described: DescribeAppResponse) -> str:
    first = described.first_failure
    why = str(described.msg) or ("" if first is None else f"{first.name} failed first")
    return joined(described.state.name, "" if why.upper() == described.state.name else why)


def _result(described: DescribeAppResponse) -> Object:
    code = code_of(described.state, described.cause, described.first_failure)
    return {"state": described.state.name, **({} if code is None else {"exit_code": code})}
