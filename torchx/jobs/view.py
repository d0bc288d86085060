"""The state of a job as its record and its events tell it."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field
from typing import Any

from torchx.errors import StateError
from torchx.exit_codes import result_of
from torchx.jobs import shape
from torchx.jobs.events import read_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord, damaged
from torchx.machine.processes import Process

ENDS = ("SUCCEEDED", "FAILED", "CANCELLED")

_LARGEST_PID = 1 << 22
"""The most that Linux gives."""


@dataclass
class AttemptView:
    """One attempt of one replica.

    Attributes:
        number: from 1.
        process: what runs or ran; None when it could not be started.
        started_at: seconds since the epoch.
        ended_at: seconds since the epoch; None while it runs.
        exit_code: what it returned; None while it runs or when a signal ended it.
        signal: name of the signal that ended it.
        stopped: why the supervisor ended it; empty when it ended by itself.
        msg: why it could not be started, or what is odd about its end.
        peak_kib: the most memory that one process of it held at a time, KiB.
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

    @property
    def state(self) -> str:
        """RUNNING, SUCCEEDED, FAILED, or CANCELLED when the supervisor ended it."""
        if self.ended_at is None:
            return "RUNNING"
        if self.stopped:
            return "CANCELLED"
        return "SUCCEEDED" if self.exit_code == 0 else "FAILED"


@dataclass
class ReplicaView:
    """One replica: its place in the application and its attempts so far.

    Attributes:
        role: its role.
        id: within the role, from 0.
        max_retries: how often a failure may be answered by a new start.
        attempts: those that were started, or could not be.
        announced: the number of an attempt whose start was announced, and of which no more is known.
    """

    role: str
    id: int
    max_retries: int
    attempts: list[AttemptView] = field(default_factory=list)
    announced: int | None = None

    @property
    def current(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return self.attempts[-1].number if self.attempts else 0


@dataclass
class JobView:
    """All that is known of a job.

    Attributes:
        record: what was submitted.
        replicas: all replicas, by ordinal.
        state: SUBMITTED, RUNNING, SUCCEEDED, FAILED or CANCELLED.
        msg: why.
        restarts: how often something of it was started again.
        started_at: when the first replica started, seconds since the epoch.
        ended_at: when the job had ended.
        first_failure: ordinal and attempt of the failure that could not be mended.
        supervisor: the supervisor's process.
        guard: the process that stands behind it.
        boot_id: the start of the machine on which it ran.
        cancelling: someone asked for the end of it.
        seen_at: when the last thing happened that is known, seconds since the epoch.
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
    cancelling: bool = False
    seen_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        """True when it is in a state that it cannot leave."""
        return self.ended_at is not None

    @property
    def exit_code(self) -> int | None:
        """What the job ended with, as a shell tells it; None while it runs or where there is no such code."""
        if self.state == "SUCCEEDED":
            return 0
        if self.first_failure is None:
            return None
        ordinal, number = self.first_failure
        for attempt in self.replicas[ordinal].attempts:
            if attempt.number == number:
                return result_of(attempt.exit_code, attempt.signal)
        return None


def load(paths: JobPaths) -> JobView:
    """Reads the state of a job.

    Raises:
        FileNotFoundError: no such job is on record.
        StateError: its record is damaged, or cannot be read.
    """
    record = JobRecord.load(paths.record)
    view = JobView(
        record,
        [ReplicaView(role.name, n, role.max_retries) for _, role, n in record.replicas()],
        seen_at=record.submitted_at,
    )
    try:
        for event in read_events(paths.events):
            fold(view, event)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EPERM, errno.EFBIG):
            raise damaged(paths.events, error.strerror) from error
        raise StateError(f"the record {paths.events} cannot be read: {error.strerror}") from error
    return view


def fold(view: JobView, event: dict[str, Any]) -> None:
    """Takes one event into the state of a job; one that is damaged, unknown or too late changes nothing."""
    apply = _FOLD.get(event["e"])
    if apply is not None and not view.has_ended:  # an event of a newer version is no reason to know nothing
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            at = shape.moment(event["t"], "t")
            apply(view, event, at)
            view.seen_at = max(view.seen_at, at)


# each reads all of its values before it changes anything


def _process(pid: Any, start: Any) -> Process:
    return Process(shape.whole(pid, "pid", 2, _LARGEST_PID), shape.whole(start, "start"))


def _replica(view: JobView, event: dict[str, Any]) -> ReplicaView:
    return view.replicas[shape.whole(event["r"], "r")]


def _supervisor(view: JobView, event: dict[str, Any], at: float) -> None:
    supervisor, boot = _process(event["pid"], event["start"]), shape.text(event["boot"], "boot")
    guard = event.get("guard")
    view.guard = _process(*guard) if guard else None
    view.supervisor, view.boot_id = supervisor, boot


def _starting(view: JobView, event: dict[str, Any], at: float) -> None:
    _replica(view, event).announced = shape.whole(event["a"], "a", least=1)


def _start(view: JobView, event: dict[str, Any], at: float) -> None:
    replica, number = _replica(view, event), shape.whole(event["a"], "a", least=1)
    attempt = AttemptView(number, _process(event["pid"], event["start"]), started_at=at)
    replica.attempts.append(attempt)
    replica.announced = None
    view.state = "RUNNING"
    if view.started_at is None:
        view.started_at = at


def _not_started(view: JobView, event: dict[str, Any], at: float) -> None:
    replica, number = _replica(view, event), shape.whole(event["a"], "a", least=1)
    code, msg = shape.exit_code(event["code"], "code"), shape.text(event["msg"], "msg")
    replica.attempts.append(AttemptView(number, started_at=at, ended_at=at, exit_code=code, msg=msg))
    replica.announced = None


def _exit(view: JobView, event: dict[str, Any], at: float) -> None:
    attempt = _replica(view, event).attempts[-1]
    code, signal = (
        shape.exit_code(event.get("code"), "code"),
        shape.signal_name(event.get("signal"), "signal"),
    )
    stopped, msg = shape.text(event.get("stopped", ""), "stopped"), shape.text(event.get("msg", ""), "msg")
    peak = event.get("peak_kib")
    attempt.peak_kib = None if peak is None else shape.whole(peak, "peak_kib")
    attempt.ended_at, attempt.exit_code, attempt.signal = at, code, signal
    attempt.stopped, attempt.msg = stopped, msg


def _retry(view: JobView, event: dict[str, Any], at: float) -> None:
    view.restarts += 1


def _cancel(view: JobView, event: dict[str, Any], at: float) -> None:
    view.cancelling = True


def _end(view: JobView, event: dict[str, Any], at: float) -> None:
    first, state = event.get("first"), shape.word(event["state"], "state")
    msg = shape.text(event.get("msg", ""), "msg")
    if first:
        ordinal, number = (shape.whole(each, "first") for each in first)
        view.first_failure = (range(len(view.replicas))[ordinal], number)
    view.state, view.msg, view.ended_at = state if state in ENDS else "FAILED", msg, at


_FOLD = {
    "supervisor": _supervisor,
    "starting": _starting,
    "start": _start,
    "not_started": _not_started,
    "exit": _exit,
    "retry": _retry,
    "cancel": _cancel,
    "end": _end,
}
