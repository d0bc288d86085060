"""The status of an application, of its replicas, and of their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from torchx.end_causes import EndCause as EndCause
from torchx.end_causes import Reason as Reason
from torchx.errors import TorchxError
from torchx.exit_codes import TIMED_OUT, result_of
from torchx.json_limits import Object
from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx.specs import status_text

NONE = "<NONE>"
"""The text of an error that does not exist."""


class AppState(int, Enum):
    """State of an application or a replica.

    An application passes from UNSUBMITTED through SUBMITTED (accepted by the scheduler), PENDING (waiting
    for resources, also after preemption) and RUNNING to a terminal state: SUCCEEDED, FAILED or CANCELLED.
    UNKNOWN is a state that the engine cannot determine.
    """

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"


ReplicaState = AppState
"""A replica has the states of an application."""

_TERMINAL = (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)


def is_terminal(state: AppState) -> bool:
    """Returns True for SUCCEEDED, FAILED and CANCELLED."""
    return state in _TERMINAL


def is_started(state: AppState) -> bool:
    """Returns True for RUNNING and the terminal states."""
    return state is AppState.RUNNING or is_terminal(state)


@dataclass(frozen=True)
class AttemptStatus:
    """An attempt: one run of one replica.

    Attributes:
        number: its number, from 1.
        state: its state.
        exit_code: its exit code; None while it runs or if a signal ended it.
        signal: the signal that ended it, e.g. ``SIGKILL``, or None.
        started_at: the start of its process.
        ended_at: the end of its process.
        pid: its process on this machine.
        msg: the reason for the state, one line.
        ready_at: when it was ready, as a replica of a service.
        cause: the cause of its end, if the engine or the supervisor knows it.
        run: the number of the run of the application that it belongs to, from 1.
        noticed_at: when its program was notified of the end of the run.
        refused: whether it is not retried because of its cause.
    """

    number: int
    state: AppState
    exit_code: int | None = None
    signal: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    pid: int | None = None
    msg: str = ""
    ready_at: datetime | None = None
    cause: EndCause | None = None
    run: int = 1
    noticed_at: datetime | None = None
    refused: bool = False

    @property
    def result(self) -> int | None:
        """The exit code, or 128 + N if signal N ended it; None while it runs."""
        return result_of(self.exit_code, self.signal)


@dataclass(frozen=True)
class FirstFailure:
    """The replica that failed first.

    Attributes:
        role: name of its role.
        replica: its id within the role.
        attempt: the number of the failed attempt, from 1.
        exit_code: its exit code; None if a signal ended it.
        signal: the signal that ended it, e.g. ``SIGKILL``, or None.
        msg: the reason, one line.
        cause: the cause, if the engine or the supervisor knows it.
        handle: in a sweep, the handle of the run, empty if it was never started; else None.
    """

    role: str
    replica: int
    attempt: int
    exit_code: int | None = None
    signal: str | None = None
    msg: str = ""
    cause: EndCause | None = None
    handle: str | None = None

    @property
    def name(self) -> str:
        """Its name in messages.

        >>> FirstFailure("trainer", 1, 1).name, FirstFailure("3", 0, 1, handle="").name
        ('trainer/1', 'run 3')
        """
        if self.run is None:
            return f"{self.role}/{self.replica}"
        return f"run {self.run}"

    @property
    def run(self) -> int | None:
        """In a sweep, the number of the run; else None."""
        if self.handle is None:
            return None
        return int(self.role)

    def as_data(self) -> Object:
        """Returns it as plain data."""
        return {**vars(self), "run": self.run, "result": self.result}

    @property
    def result(self) -> int | None:
        """The exit code, or 128 + N if signal N ended it."""
        return result_of(self.exit_code, self.signal)


def failure_of(role: str, replica: int, attempt: AttemptStatus) -> FirstFailure:
    """Returns the first failure of an application from the attempt that has failed.

    Args:
        role: name of its role.
        replica: its id within the role.
        attempt: the attempt.
    """
    return FirstFailure(
        role, replica, attempt.number, attempt.exit_code, attempt.signal, attempt.msg, attempt.cause
    )


def code_of(state: AppState, cause: EndCause | None, first: FirstFailure | None) -> int | None:
    """Returns the exit code of an application; None if it is unknown.

    0 if it succeeded, 124 if it reached its time limit, else that of the replica that failed first.

    >>> code_of(AppState.FAILED, EndCause.TIME_LIMIT, None), code_of(AppState.CANCELLED, None, None)
    (124, None)
    """
    if state is AppState.SUCCEEDED:
        return 0
    causes = (cause, None if first is None else first.cause)
    if state is AppState.FAILED and EndCause.TIME_LIMIT in causes:
        return TIMED_OUT
    if first is None:
        return None
    return first.result


@dataclass
class ReplicaStatus:
    """The status of a replica.

    Attributes:
        id: its id within the role, from 0.
        state: its state.
        role: name of the role.
        hostname: its machine.
        structured_error_msg: its error file, as JSON text.
        hostaddr: the address of the machine (default: its name).
        attempts: all its attempts, the current one last.
        max_attempts: the maximum number of attempts.
        required: whether the application succeeds only if this replica ends with exit 0; False if a policy
            of the user ends it after the others have succeeded.

    Properties of the current attempt: ``attempt`` (its number; 1 if unknown), ``exit_code``, ``signal``,
    ``started_at``, ``ended_at``, ``pid``.
    """

    id: int
    state: ReplicaState
    role: str
    hostname: str
    structured_error_msg: str = NONE
    hostaddr: str | None = None
    attempts: list[AttemptStatus] = field(default_factory=list)
    max_attempts: int = 1
    required: bool = True

    def __post_init__(self) -> None:
        if self.hostaddr is None:
            self.hostaddr = self.hostname
        state: object = self.state
        if not isinstance(state, AppState):  # a plugin passed a number, which proves nothing
            self.state, self.required = AppState.UNKNOWN, False

    @property
    def _current(self) -> AttemptStatus:
        if self.attempts:
            return self.attempts[-1]
        return AttemptStatus(1, self.state)

    @property
    def attempt(self) -> int:
        """Number of the current attempt, from 1."""
        return self._current.number

    @property
    def exit_code(self) -> int | None:
        """The exit code of the current attempt; None while it runs or if a signal ended it."""
        return self._current.exit_code

    @property
    def signal(self) -> str | None:
        """The signal that ended the current attempt."""
        return self._current.signal

    @property
    def started_at(self) -> datetime | None:
        """The start of the current attempt."""
        return self._current.started_at

    @property
    def ended_at(self) -> datetime | None:
        """The end of the current attempt."""
        return self._current.ended_at

    @property
    def pid(self) -> int | None:
        """The process of the current attempt on this machine."""
        return self._current.pid


Member = tuple[str, int]
"""A member of a role: the role, and the id of a replica or a rank within it."""


@dataclass
class RoleStatus:
    """The replicas of one role.

    Attributes:
        role: name of the role.
        replicas: the status of each.
        ready: of a service, the number of replicas that are ready; None for an ordinary role.
    """

    role: str
    replicas: list[ReplicaStatus]
    ready: int | None = None

    def to_json(self) -> Object:
        """Returns the status as plain data for ``json``, as in :meth:`AppStatus.to_json`."""
        replicas = [status_text.replica_json(replica) for replica in self.replicas]
        return {"role": self.role, "ready": self.ready, "replicas": replicas}


def _is_doubtful(replica: ReplicaStatus) -> bool:
    """Returns True if a required replica is not SUCCEEDED, or its last attempt has another result than 0."""
    last = replica._current
    contradicted = last.state is AppState.SUCCEEDED and bool(last.result)
    return replica.required and (replica.state is not AppState.SUCCEEDED or contradicted)


def proven(state: AppState, msg: str, roles: Sequence[RoleStatus]) -> tuple[AppState, str]:
    """Returns a state and its reason: SUCCEEDED only if each replica ended with exit 0.

    Applied to the responses of all engines.

    Args:
        state: the state that an engine reports.
        msg: its reason.
        roles: all replicas that the engine knows.

    >>> proven(AppState.SUCCEEDED, "", [RoleStatus("r", [ReplicaStatus(0, AppState.RUNNING, "r", "")])])
    (UNKNOWN (7), 'r/0 is not known to have ended with exit 0: it is RUNNING')
    """
    if state is not AppState.SUCCEEDED:
        return state, msg
    doubtful = [replica for role in roles for replica in role.replicas if _is_doubtful(replica)]
    if not doubtful:
        return state, msg
    failed = [r for r in doubtful if r.state in (AppState.SUCCEEDED, AppState.FAILED)]
    first = (failed or doubtful)[0]
    if failed:
        ended = first.signal or first.exit_code
        state = AppState.FAILED
        if ended is None:
            how = "failed"
        else:
            how = f"ended with {ended}"
    elif all(replica.state is AppState.CANCELLED for replica in doubtful):
        state, how = AppState.CANCELLED, "was cancelled"
    else:
        state = AppState.UNKNOWN
        how = f"is not known to have ended with exit 0: it is {first.state.name}"
    return state, msg or f"{first.role}/{first.id} {how}"


@dataclass
class AppStatus:
    """The status of an application.

    Attributes:
        state: the state of the application.
        num_restarts: the number of restarts of the whole application.
        run: the number of its run, from 1; a requeue after a time limit or a preemption begins the next.
        msg: the reason for the state, one line.
        structured_error_msg: the error file of the first failed replica, as JSON text.
        ui_url: its page in a browser.
        roles: its replicas, role by role.
        submitted_at: the time of its submission.
        started_at: the start of its first replica.
        ended_at: the end of its last replica.
        first_failure: the replica that failed first.
        log_dir: the folder of its logs, if they are files on this machine.
        workspaces: the folder of each role's copy of the workspace, if it is on this machine.
        report_dir: the folder with the stacks at the last stall, if they are on this machine.
        cause: the cause of the state, if the engine or the supervisor knows it.

    All times have a time zone.
    """

    state: AppState
    num_restarts: int = 0
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    roles: list[RoleStatus] = field(default_factory=list)
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    first_failure: FirstFailure | None = None
    log_dir: str | None = None
    workspaces: dict[str, str] = field(default_factory=dict)
    run: int = 1
    report_dir: str | None = None
    cause: EndCause | None = None

    @property
    def replicas(self) -> list[ReplicaStatus]:
        """All replicas, in the order of the roles."""
        return [replica for role in self.roles for replica in role.replicas]

    def is_terminal(self) -> bool:
        """Returns True if the application has ended."""
        return is_terminal(self.state)

    def raise_for_status(self) -> None:
        """Raises an error unless the application has succeeded.

        Raises:
            AppStatusError: it is in another state.
        """
        if self.state is not AppState.SUCCEEDED:
            raise AppStatusError(self)

    def to_json(self, filter_roles: Sequence[str] | None = None) -> Object:
        """Returns the status as plain data for ``json``.

        States are names, times ISO 8601 with zone, durations seconds.

        Args:
            filter_roles: names of the roles to include (default: all).
        """
        return status_text.as_json(self, filter_roles)

    def format(self, filter_roles: Sequence[str] | None = None) -> str:
        """Returns the status as text for display, without colours.

        Args:
            filter_roles: names of the roles to include (default: all).
        """
        return status_text.as_text(self, filter_roles)

    def __str__(self) -> str:
        return self.format()


class AppStatusError(TorchxError):
    """An application has not succeeded.

    Args:
        status: its status.
    """

    code = "application_failed"

    def __init__(self, status: AppStatus, *args: object) -> None:
        first, why = status.first_failure, status.msg
        if first is not None and first.result is not None:
            why = f"{first.name} failed first: {first.signal or f'exit {first.exit_code}'}"
        more = f": {why}" if why else ""
        super().__init__(f"the application did not succeed, it is {status.state.name}{more}")
        self.status = status
        self.args = (status, *args)

    def __str__(self) -> str:
        """Returns the message and the whole status."""
        return f"{self.message}\n{self.status.format()}"
