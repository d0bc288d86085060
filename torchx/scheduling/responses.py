"""The answers of schedulers about applications; ``torchx.scheduling.base`` re-exports them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from torchx.lazy import lazy_imports
from torchx.printable import printable
from torchx.specs.status import (
    NONE,
    AppState,
    AppStatus,
    EndCause,
    FirstFailure,
    ReplicaStatus,
    RoleStatus,
    proven,
)

with lazy_imports:
    import html

    from torchx.specs import app as specs_app

if TYPE_CHECKING:
    from pathlib import Path

    from torchx.scheduling.query import AppQuery
    from torchx.scheduling.stalls import StallReport
    from torchx.specs.app import Role
    from torchx.specs.run_options import OptionValues

NOT_SET = "<NOT_SET>"
"""The default of an id or a handle."""


@dataclass
class DescribeAppResponse:
    """The description of an application by its engine.

    Attributes:
        app_id: the id assigned by the engine, as in the handle.
        state: the state of the application.
        num_restarts: the number of restarts of the whole application; -1 if unknown.
        run: the number of its run, from 1; a requeue after a time limit or a preemption begins the next.
        msg: the reason for the state, one line; may be empty.
        structured_error_msg: the error file of the first failed replica, as JSON text.
        ui_url: its page in a browser.
        metadata: the application's metadata.
        roles_statuses: the replicas of each role, in the order of the roles.
        roles: the roles as submitted.
        name: the application's name; empty if the engine does not keep it.
        submitted_at: the time of its submission.
        started_at: the start of its first replica.
        ended_at: the end of its last replica.
        first_failure: the replica that failed first.
        log_dir: the folder of its logs, if they are files on this machine.
        workspaces: the folder of each role's copy of the workspace, if it is on this machine.
        cfg: the run options it was submitted with.
        needs_reconcile: whether :meth:`Scheduler.reconcile` has something to do, such as recording the end of
            a job whose supervisor died; the runner calls it then.
        stalls: the reported stalls, unless the engine records them as events.
        report_dir: the folder with the stacks at the last stall, if they are on this machine.
        steps_dir: the folder with the progress of ranks that report steps, if it is on this machine.
        owner: the other user that it belongs to, so that its replicas are not known; empty for the caller.
        cause: the cause of the state, if the engine or the supervisor knows it.
    """

    app_id: str = NOT_SET
    state: AppState = AppState.UNSUBMITTED
    num_restarts: int = -1
    msg: str = ""
    structured_error_msg: str = NONE
    ui_url: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    roles_statuses: list[RoleStatus] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    name: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    first_failure: FirstFailure | None = None
    log_dir: str | None = None
    workspaces: dict[str, str] = field(default_factory=dict)
    cfg: OptionValues = field(default_factory=dict)
    needs_reconcile: bool = False
    run: int = 1
    stalls: Sequence[StallReport] = ()
    report_dir: str | None = None
    steps_dir: Path | None = None
    owner: str = ""
    cause: EndCause | None = None

    def __post_init__(self) -> None:
        self.state, self.msg = proven(self.state, self.msg, self.roles_statuses)

    def app(self) -> specs_app.AppDef:
        """Returns the recorded application."""
        return specs_app.AppDef(self.name or self.app_id, self.roles, self.metadata)

    @property
    def replicas(self) -> list[ReplicaStatus]:
        """All replicas, in the order of the roles."""
        return [replica for role in self.roles_statuses for replica in role.replicas]


@dataclass
class ListAppResponse:
    """An application in a listing.

    Attributes:
        app_id: the id assigned by the engine.
        state: the state of the application.
        app_handle: the handle; set by the runner.
        name: the application's name.
        submitted_at: the time of its submission.
        started_at: the start of its first replica.
        ended_at: the end of its last replica.
        exit_code: the result of the application: 0, or the exit code of the replica that failed first
            (128 + N if signal N killed it); None while it runs or if unknown.
        msg: the reason for the state, one line.
        needs_reconcile: whether :meth:`Scheduler.reconcile` has something to do.
        is_own: whether the caller submitted it; False if the owner on a shared engine is unknown.
        tags: its tags.
        run: its id as a run of a sweep, from its metadata; empty for others.
    """

    app_id: str
    state: AppState
    app_handle: str = NOT_SET
    name: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    msg: str = ""
    needs_reconcile: bool = False
    is_own: bool = True
    tags: dict[str, str] = field(default_factory=dict)
    run: str = ""

    def matches(self, query: AppQuery) -> bool:
        """Returns True if a query selects the application."""
        return query.takes(self.app_id, self.name, self.state.name, self.submitted_at, self.tags)

    @property
    def order(self) -> tuple[float, str]:
        """The seconds from 1970 to its submission, 0 if that is unknown, and its id: a key to sort by."""
        if self.submitted_at is None:
            return 0.0, self.app_id
        return self.submitted_at.timestamp(), self.app_id

    def __post_init__(self) -> None:
        if self.state is AppState.SUCCEEDED and self.exit_code:
            self.state = AppState.FAILED


T = TypeVar("T")


class Rows(list[T]):
    """A list that a notebook displays as a table; so are its slices."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> Rows[T]: ...

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        if isinstance(at, slice):
            return type(self)(found)
        return found


class AppList(Rows[ListAppResponse]):
    """Applications, which a notebook displays as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (
                app.app_id,
                app.name,
                app.state.name,
                app.started_at and f"{app.started_at.astimezone():%Y-%m-%d %H:%M}",
                app.exit_code,
                app.msg,
            )
            for app in self
        ]
        return html_table(("application", "name", "state", "started", "exit", ""), rows)


COLOURS = {"SUCCEEDED": "#2e7d32", "RUNNING": "#2e7d32", "FAILED": "#c62828"}
"""The colours of states in HTML."""


def html_table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Returns a table as HTML; all text is escaped, and states have colours."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    text = html.escape(printable(value))
    return f'<td style="color:{COLOURS.get(text, "")}">{text}</td>'


def epoch_seconds(at: datetime | None) -> float | None:
    """Returns a time in seconds since the epoch."""
    if at is None:
        return None
    return at.timestamp()


def local_time(seconds: float | None, step: float = 0.0) -> datetime | None:
    """Returns seconds since the epoch as a time in the zone of this machine.

    Args:
        seconds: the time; None if it is unknown.
        step: seconds to add, after a change of the system clock.
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds + step, timezone.utc).astimezone()


def status_of(described: DescribeAppResponse) -> AppStatus:
    """Returns the status in a scheduler's description of an application."""
    return AppStatus(
        state=described.state,
        num_restarts=described.num_restarts,
        msg=described.msg if isinstance(described.msg, str) else printable(described.msg),
        structured_error_msg=described.structured_error_msg,
        ui_url=described.ui_url,
        roles=described.roles_statuses,
        submitted_at=described.submitted_at,
        started_at=described.started_at,
        ended_at=described.ended_at,
        first_failure=described.first_failure,
        log_dir=described.log_dir,
        workspaces=described.workspaces,
        run=described.run,
        report_dir=described.report_dir,
        cause=described.cause,
    )
