"""The state of a job, from its record and its events."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field
from typing import Any

from torchx import json_shape
from torchx.end_causes import EndCause, recorded_cause
from torchx.errors import StateError
from torchx.exit_codes import KILLED, TIMED_OUT
from torchx.jobs.events import read_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, damaged
from torchx.json_limits import Object
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


@dataclass
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


@dataclass
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


@dataclass
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
    apply = _FOLD.get(event["e"])
    if apply is not None and not view.has_ended:  # unknown: an event of a newer version
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            at = json_shape.timestamp(event["t"], "t")
            apply(view, event, at)
            view.seen_at = max(view.seen_at, at)
            return True
    return False


# each function reads all of its values before it changes anything


def process_of(pid: Any, start: Any) -> Process:
    """Returns the process in an event.

    Raises:
        TypeError, ValueError: it is damaged.
    """
    return Process(json_shape.integer(pid, "pid", 2, _LARGEST_PID), json_shape.integer(start, "start"))


def _replica(view: JobView, event: Object) -> ReplicaView:
    return view.replicas[json_shape.integer(event["r"], "r")]


def _current(view: JobView, event: Object) -> AttemptView:
    """Returns the attempt of an event, which must be the current one: the event of a start may be lost.

    Raises:
        ValueError: it is another one.
    """
    attempt = _replica(view, event).attempts[-1]
    if attempt.number != json_shape.integer(event["a"], "a", minimum=1):
        raise ValueError(f"attempt {attempt.number} is the current one")
    return attempt


def _supervisor(view: JobView, event: Object, at: float) -> None:
    supervisor, boot = process_of(event["pid"], event["start"]), json_shape.text(event["boot"], "boot")
    guard, booted_at = event.get("guard"), None
    if "uptime" in event:
        booted_at = at - json_shape.timestamp(event["uptime"], "uptime")
    view.guard = process_of(*guard) if guard else None
    view.supervisor, view.boot_id, view.booted_at = supervisor, boot, booted_at


def _starting(view: JobView, event: Object, at: float) -> None:
    _replica(view, event).announced = json_shape.integer(event["a"], "a", minimum=1)


def _start(view: JobView, event: Object, at: float) -> None:
    replica, number = _replica(view, event), json_shape.integer(event["a"], "a", minimum=1)
    attempt = AttemptView(number, process_of(event["pid"], event["start"]), started_at=at, run=view.run)
    replica.attempts.append(attempt)
    replica.announced = None
    view.state, view.stalled = "RUNNING", None
    if view.started_at is None:
        view.started_at = at


def _not_started(view: JobView, event: Object, at: float) -> None:
    replica, number = _replica(view, event), json_shape.integer(event["a"], "a", minimum=1)
    code, msg = json_shape.exit_code(event["code"], "code"), json_shape.text(event["msg"], "msg")
    replica.attempts.append(
        AttemptView(number, started_at=at, ended_at=at, exit_code=code, msg=msg, cause=recorded_cause(event))
    )
    replica.announced = None
    view.over = json_shape.typed_at(event, dict, "over") or view.over


def _exit(view: JobView, event: Object, at: float) -> None:
    attempt = _current(view, event)
    code, signal = (
        json_shape.exit_code(event.get("code"), "code"),
        json_shape.signal_name(event.get("signal"), "signal"),
    )
    stopped, msg = (
        json_shape.text(event.get("stopped", ""), "stopped"),
        json_shape.text(event.get("msg", ""), "msg"),
    )
    peak = event.get("peak_kib")
    if peak is not None:
        attempt.peak_kib = json_shape.integer(peak, "peak_kib")
    attempt.usage = _usage(event.get("usage"), at)
    attempt.ended_at, attempt.exit_code, attempt.signal = at, code, signal
    attempt.stopped, attempt.msg, attempt.needed = stopped, msg, event.get("needed") is True
    attempt.ready, attempt.cause = False, recorded_cause(event)
    view.over = json_shape.typed_at(event, dict, "over") or view.over


def _ready(view: JobView, event: Object, at: float) -> None:
    attempt = _current(view, event)
    attempt.ready, attempt.ready_at = True, at


def _usage(usage: Any, at: float) -> Sample | None:
    """Returns the measurements in an event; None if they are damaged, which must not hide the end."""
    if not isinstance(usage, dict):
        return None
    known = {name: usage[name] for name in Sample._fields[1:] if usage.get(name) is not None}
    try:
        for name, value in known.items():
            if name in ("memory", "gpu_memory"):
                json_shape.integer(value, name)
            else:
                json_shape.number(value, name, _LARGEST_RATE)
        return Sample(at, **known)
    except (TypeError, ValueError):
        return None


def _retry(view: JobView, event: Object, at: float) -> None:
    view.restarts += 1


def _requeue(view: JobView, event: Object, at: float) -> None:
    view.run = json_shape.integer(event["n"], "n", minimum=1) + 1
    view.restarts += 1


def _notice(view: JobView, event: Object, at: float) -> None:
    json_shape.text(event.get("msg", ""), "msg")


def _stalled(view: JobView, event: Object, at: float) -> None:
    json_shape.text(event.get("msg", ""), "msg")
    if event.get("r") is not None:
        _replica(view, event)
    step = event.get("step")
    if step is not None:
        step = json_shape.integer(step, "step")
    view.stalled = json_shape.timestamp(event.get("since", at), "since"), step


def _progress(view: JobView, event: Object, at: float) -> None:
    view.stalled = None


def _cancel(view: JobView, event: Object, at: float) -> None:
    view.cancelling = True


def _end(view: JobView, event: Object, at: float) -> None:
    first, state = event.get("first"), json_shape.handle_text(event["state"], "state")
    msg = json_shape.text(event.get("msg", ""), "msg")
    if first:
        ordinal, number = (json_shape.integer(item, "first") for item in first)
        view.first_failure = (range(len(view.replicas))[ordinal], number)
    view.state, view.msg, view.ended_at = state if state in ENDS else "FAILED", msg, at
    view.cause = recorded_cause(event)


_FOLD = {
    "supervisor": _supervisor,
    "starting": _starting,
    "start": _start,
    "not_started": _not_started,
    "exit": _exit,
    "ready": _ready,
    "retry": _retry,
    "requeue": _requeue,
    "notice": _notice,
    "waiting": _notice,
    "stalled": _stalled,
    "progress": _progress,
    "cancel": _cancel,
    "end": _end,
}
