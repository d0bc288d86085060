"""The state of a job, from its record and its events."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torchx import json_shape
from torchx.end_causes import EndCause, recorded_cause
from torchx.errors import StateError
from torchx.exit_codes import KILLED, TIMED_OUT
from torchx.jobs.events import read_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, damaged
from torchx.json_limits import Object
from torchx.json_shape import Check
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.printable import memory_size
from torchx.scheduling.measurement import Sample
from torchx.specs.status import FirstFailure

ENDS = ("SUCCEEDED", "FAILED", "CANCELLED")

_LARGEST_PID = 1 << 22
"""The maximum pid of Linux."""

_LARGEST_RATE = 1e15
"""The maximum value of a measurement."""


@dataclass(repr=False)
class AttemptView:
    """One attempt of one replica.

    Attributes:
        number: from 1.
        process: its process; None if it could not be started.
        started_at: seconds since the epoch.
        ended_at: seconds since the epoch; None while it runs.
        exit_code: its exit code; None while it runs, or if a signal ended it.
        signal: name of the signal that ended it.
        stopped: why the supervisor ended it; empty if it ended by itself.
        msg: why it could not be started, or a remark about its end.
        peak_kib: peak memory of its largest process, KiB.
        usage: the measurements of the whole attempt; None while it runs, or if there are none.
        ready: whether it is a running replica of a service, and is ready.
        ready_at: when it was ready, in seconds since the epoch.
        needed: whether it is one that ended by itself while it was needed, which is a failure.
        cause: the cause of its end, if the supervisor knows it.
        run: the number of the run that it belongs to, from 1.
    """

    number: int
    process: Process | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    stopped: str = ""
    msg: str = ""
    peak_kib: int | None = None
    usage: Sample | None = None
    ready: bool = False
    ready_at: float | None = None
    needed: bool = False
    cause: EndCause | None = None
    run: int = 1

    @property
    def state(self) -> str:
        """RUNNING, SUCCEEDED, FAILED, or CANCELLED if the supervisor ended it."""
        if self.ended_at is None:
            return "RUNNING"
        if self.stopped:
            return "CANCELLED"
        if self.exit_code == 0 and not self.needed:
            return "SUCCEEDED"
        return "FAILED"

    @property
    def reason(self) -> str:
        """The reason of its failure, or an empty string."""
        if self.signal != "SIGKILL":
            return self.msg
        peak, reason = self.peak_memory, self.msg or KILLED
        if peak:
            return f"{reason}; peak memory {memory_size(peak)}"
        return reason

    @property
    def peak_memory(self) -> int | None:
        """Its peak memory in bytes; in records of older versions, that of its largest process.

        The latter may be the supervisor's own, from before the process began its program.
        """
        if self.usage is not None:
            return self.usage.memory
        if self.peak_kib:
            return self.peak_kib * 1024
        return None


@dataclass(repr=False)
class ReplicaView:
    """One replica and its attempts so far.

    Attributes:
        role: its role.
        id: within the role, from 0.
        max_retries: maximum number of retries.
        attempts: its attempts, including those that could not be started.
        announced: the number of an attempt whose start was announced, but not recorded yet.
    """

    role: str
    id: int
    max_retries: int
    attempts: list[AttemptView] = field(default_factory=list)
    announced: int | None = None

    @property
    def current(self) -> int:
        """The number of the current attempt, or 0 before the first."""
        if self.attempts:
            return self.attempts[-1].number
        return 0

    @property
    def ready(self) -> bool:
        """Whether it is ready, as a replica of a service."""
        return any(attempt.ready for attempt in self.attempts[-1:])


@dataclass(repr=False)
class JobView:
    """The state of a job.

    Attributes:
        record: the record.
        replicas: all replicas, by ordinal.
        state: SUBMITTED, RUNNING, SUCCEEDED, FAILED or CANCELLED.
        msg: the reason for the state.
        restarts: number of restarts.
        started_at: when the first replica started, seconds since the epoch.
        ended_at: when the job ended.
        first_failure: ordinal and attempt of the failure that ended the job.
        supervisor: the supervisor's process.
        guard: the guard's process.
        boot_id: the boot id of the machine while it ran.
        booted_at: when the machine was booted, by the clock of the job; None if unknown.
        cancelling: whether its cancellation was requested.
        seen_at: time of the last event, seconds since the epoch.
        orphaned: whether its supervisor died before it recorded the end.
        run: the number of its run; each requeue after a time limit begins another one.
        stalled: while it makes no progress: the time of the last progress, and the last step if known.
        cause: the cause of its end, if the supervisor knows it.
        over: its end, if that is decided: replicas, or processes that these left, may still be running.
    """

    record: JobRecord
    replicas: list[ReplicaView]
    state: str = "SUBMITTED"
    msg: str = ""
    restarts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    first_failure: tuple[int, int] | None = None
    supervisor: Process | None = None
    guard: Process | None = None
    boot_id: str = ""
    booted_at: float | None = None
    cancelling: bool = False
    seen_at: float = 0.0
    orphaned: bool = False
    run: int = 1
    stalled: tuple[float, int | None] | None = None
    cause: EndCause | None = None
    over: Object = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """True if the job is in a final state."""
        return self.ended_at is not None

    @property
    def clock_step(self) -> float:
        """Seconds by which the system clock was set forward since the job started; 0 for one that has ended.

        The times of a job are those of its own clock; this makes them times of the system clock of now, so
        that durations until now are right.
        """
        if self.has_ended:
            return 0.0
        return processes.clock_step(self.boot_id, self.booted_at)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the job, as a shell reports it, or None if it runs or has none."""
        if self.state == "SUCCEEDED":
            return 0
        if self.state == "FAILED" and self.cause is EndCause.TIME_LIMIT:
            return TIMED_OUT
        if self.failure is None:
            return None
        result = self.failure.result
        # 0: a service that ended while it was needed
        if result == 0:
            return 1
        return result

    @property
    def failure(self) -> FirstFailure | None:
        """The failure that ended the job."""
        if self.first_failure is None:
            return None
        ordinal, number = self.first_failure
        replica = self.replicas[ordinal]
        attempt = next((a for a in replica.attempts if a.number == number), AttemptView(number))
        return FirstFailure(
            replica.role,
            replica.id,
            number,
            attempt.exit_code,
            attempt.signal,
            attempt.reason,
            attempt.cause,
        )


def submitted(paths: JobPaths) -> JobView:
    """Reads the record of a job; returns its state before its first event.

    Raises:
        FileNotFoundError: the job has no record.
        StateError: its record is damaged, or cannot be read.
    """
    record = JobRecord.load(paths.record)
    replicas = [ReplicaView(role.name, n, role.max_retries) for _, role, n in record.replicas()]
    return JobView(record, replicas, seen_at=record.submitted_at)


def load(paths: JobPaths) -> JobView:
    """Reads the state of a job.

    Raises:
        FileNotFoundError: the job has no record.
        StateError: its record is damaged, or cannot be read.
    """
    view = submitted(paths)
    try:
        for event in read_events(paths.events):
            fold(view, event)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EPERM, errno.EFBIG):
            raise damaged(paths.events, error.strerror) from error
        raise StateError(f"the record {paths.events} cannot be read: {error.strerror}") from error
    return view


def fold(view: JobView, event: Object) -> bool:
    """Applies one event to the state of a job; returns False for damaged, unknown and late events."""
    reader = _FOLD.get(event["e"])
    if reader is not None and not view.has_ended:  # unknown: an event of a newer version
        apply, checks, optional = reader
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            checked = json_shape.fields_of(event, "event", {**_TIME, **checks}, optional)
            at = checked["t"]
            apply(view, {**event, **checked}, at)
            view.seen_at = max(view.seen_at, at)
            return True
    return False


_PID = partial(json_shape.integer, minimum=2, maximum=_LARGEST_PID)
_PROCESS: dict[str, Check] = {"pid": _PID, "start": json_shape.integer}
_POSITIVE = partial(json_shape.integer, minimum=1)


def process_of(pid: Any, start: Any) -> Process:
    """Returns the process in an event.

    Raises:
        TypeError, ValueError: it is damaged.
    """
    return Process(**json_shape.fields_of({"pid": pid, "start": start}, "process", _PROCESS))


# each function reads all of its values before it changes anything; the fields of its table are checked


def _replica(view: JobView, event: Object) -> ReplicaView:
    replica: ReplicaView = view.replicas[event["r"]]
    return replica


def _current(view: JobView, event: Object) -> AttemptView:
    """Returns the attempt of an event, which must be the current one: the event of a start may be lost.

    Raises:
        ValueError: it is another one.
    """
    attempt = _replica(view, event).attempts[-1]
    if attempt.number != event["a"]:
        raise ValueError(f"attempt {attempt.number} is the current one")
    return attempt


def _supervisor(view: JobView, event: Object, at: float) -> None:
    guard, booted_at = None, None
    if event.get("guard"):
        guard = process_of(*event["guard"])
    if "uptime" in event:
        booted_at = at - event["uptime"]
    view.guard, view.supervisor = guard, Process(event["pid"], event["start"])
    view.boot_id, view.booted_at = event["boot"], booted_at


def _starting(view: JobView, event: Object, at: float) -> None:
    _replica(view, event).announced = event["a"]


def _start(view: JobView, event: Object, at: float) -> None:
    replica = _replica(view, event)
    process = None
    if "pid" in event:
        process = Process(event["pid"], event["start"])
    replica.attempts.append(AttemptView(event["a"], process, started_at=at, run=view.run))
    replica.announced = None
    view.state, view.stalled = "RUNNING", None
    if view.started_at is None:
        view.started_at = at


def _not_started(view: JobView, event: Object, at: float) -> None:
    replica, cause = _replica(view, event), recorded_cause(event)
    attempt = AttemptView(event["a"], started_at=at, ended_at=at, exit_code=event["code"], msg=event["msg"])
    attempt.cause = cause
    replica.attempts.append(attempt)
    replica.announced = None
    view.over = _over(view, event)


def _exit(view: JobView, event: Object, at: float) -> None:
    attempt, cause = _current(view, event), recorded_cause(event)
    usage = _usage(event.get("usage"), at)
    peak = event.get("peak_kib")
    if peak is not None:
        attempt.peak_kib = peak
    attempt.usage = usage
    attempt.ended_at, attempt.exit_code, attempt.signal = at, event.get("code"), event.get("signal")
    attempt.stopped, attempt.msg = event.get("stopped", ""), event.get("msg", "")
    attempt.needed = event.get("needed") is True
    attempt.ready, attempt.cause = False, cause
    view.over = _over(view, event)


def _over(view: JobView, event: Object) -> Object:
    """Returns the end of a job that the end of an attempt decides, or the one decided before."""
    over = event.get("over")
    if isinstance(over, dict) and over:
        return over
    return view.over


def _ready(view: JobView, event: Object, at: float) -> None:
    attempt = _current(view, event)
    attempt.ready, attempt.ready_at = True, at


_USAGE: dict[str, Check] = {
    **dict.fromkeys(Sample._fields[1:], partial(json_shape.number, maximum=_LARGEST_RATE)),
    **dict.fromkeys(("memory", "gpu_memory"), json_shape.integer),
}


def _usage(usage: Any, at: float) -> Sample | None:
    """Returns the measurements in an event; None if they are damaged, which must not hide the end."""
    if not isinstance(usage, dict):
        return None
    known = {name: value for name, value in usage.items() if value is not None}
    try:
        return Sample(at, **json_shape.fields_of(known, "usage", _USAGE, _USAGE))
    except (TypeError, ValueError):
        return None


def _retry(view: JobView, event: Object, at: float) -> None:
    view.restarts += 1


def _requeue(view: JobView, event: Object, at: float) -> None:
    view.run = event["n"] + 1
    view.restarts += 1


def _notice(view: JobView, event: Object, at: float) -> None:
    """Changes nothing: the event is for the log of events."""


def _stalled(view: JobView, event: Object, at: float) -> None:
    if event.get("r") is not None:
        _replica(view, event)
    view.stalled = event.get("since", at), event.get("step")


def _progress(view: JobView, event: Object, at: float) -> None:
    view.stalled = None


def _cancel(view: JobView, event: Object, at: float) -> None:
    view.cancelling = True


def _end(view: JobView, event: Object, at: float) -> None:
    cause, first = recorded_cause(event), event.get("first")
    if first:
        ordinal, number = (json_shape.integer(item, "first") for item in first)
        view.first_failure = (range(len(view.replicas))[ordinal], number)
    view.state = "FAILED"
    if event["state"] in ENDS:
        view.state = event["state"]
    view.msg, view.ended_at = event.get("msg", ""), at
    view.cause = cause


_TIME: dict[str, Check] = {"t": json_shape.timestamp}
_REPLICA: dict[str, Check] = {"r": json_shape.integer}
_ATTEMPT: dict[str, Check] = {**_REPLICA, "a": _POSITIVE}
_MESSAGE: dict[str, Check] = {"msg": json_shape.text}

_Reader = tuple[Callable[[JobView, Object, float], None], dict[str, Check], Collection[str]]
"""A function that applies an event, the checks of the event's fields, and the fields that may be missing."""

_FOLD: dict[str, _Reader] = {
    "supervisor": (
        _supervisor,
        {**_PROCESS, "boot": json_shape.text, "uptime": json_shape.timestamp},
        ("uptime",),
    ),
    "starting": (_starting, _ATTEMPT, ()),
    "start": (_start, {**_ATTEMPT, **_PROCESS}, ()),
    "started": (_start, _ATTEMPT, ()),  # of a container
    "not_started": (_not_started, {**_ATTEMPT, **_MESSAGE, "code": json_shape.exit_code}, ()),
    "exit": (
        _exit,
        {
            **_ATTEMPT,
            **_MESSAGE,
            "code": json_shape.exit_code,
            "signal": json_shape.signal_name,
            "stopped": json_shape.text,
            "peak_kib": json_shape.integer_or_null,
        },
        ("code", "signal", "stopped", "msg", "peak_kib"),
    ),
    "ready": (_ready, _ATTEMPT, ()),
    "retry": (_retry, {}, ()),
    "requeue": (_requeue, {"n": _POSITIVE}, ()),
    **dict.fromkeys(("notice", "waiting", "straggler"), (_notice, _MESSAGE, _MESSAGE)),
    "stalled": (
        _stalled,
        {
            **_MESSAGE,
            "r": json_shape.integer_or_null,
            "step": json_shape.integer_or_null,
            "since": json_shape.timestamp,
        },
        ("msg", "r", "step", "since"),
    ),
    "progress": (_progress, {}, ()),
    "cancel": (_cancel, {}, ()),
    "end": (_end, {**_MESSAGE, "state": json_shape.handle_text}, _MESSAGE),
}
