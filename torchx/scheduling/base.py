"""The interface of an engine: what the core asks of a scheduler, and no more.

A scheduler has two halves: :meth:`Scheduler._submit_dryrun`, a pure function from an application and
options to a request, and :meth:`Scheduler.schedule`, the thin hand that submits such a request.
``torchx.schedulers.api`` is the documented name of this module.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx.errors import UsageError
from torchx.scheduling.protocols import BuildsImages as BuildsImages
from torchx.scheduling.protocols import BuildsWorkspaces as BuildsWorkspaces
from torchx.scheduling.protocols import Diagnoses as Diagnoses
from torchx.scheduling.protocols import Executes as Executes
from torchx.scheduling.protocols import Glances as Glances
from torchx.scheduling.protocols import Kills as Kills
from torchx.scheduling.protocols import LogChunks as LogChunks
from torchx.scheduling.protocols import Prunes as Prunes
from torchx.scheduling.protocols import Selects as Selects
from torchx.scheduling.protocols import Shared as Shared
from torchx.scheduling.protocols import Waits as Waits
from torchx.specs.status import NONE, AppState, FirstFailure, RoleStatus, proven

if TYPE_CHECKING:
    from torchx.scheduling.logs import Stream
    from torchx.specs.app import AppDef, Role
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal, runopts
    from torchx.specs.workspace import Workspace

T = TypeVar("T")
Lines = list[str]
# named here, since within the class `list` is a method


@dataclass
class DescribeAppResponse:
    """All that an engine knows of one application.

    Attributes:
        app_id: the id that the engine gave, as in the handle.
        state: the state of the whole application.
        num_restarts: how often the application as a whole was started again; -1 when not known.
        msg: why it is in this state, one line; empty when the state says it all.
        structured_error_msg: the error file of the replica that failed first, as JSON text.
        ui_url: where to look at it in a browser.
        metadata: the application's metadata.
        roles_statuses: the replicas of each role, in the order of the roles.
        roles: the application's roles as they were submitted.
        name: the application's name; empty when the engine does not keep it.
        submitted_at: when it was submitted.
        started_at: when its first replica started.
        ended_at: when the last of it ended.
        first_failure: the replica that failed first.
        log_dir: the folder that holds its logs, where they are files on this machine.
        workspaces: the folder that holds the copy each role runs in, where it is one on this machine.
        cfg: the run options it was submitted with.
    """

    app_id: str = "<NOT_SET>"
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
    cfg: dict[str, CfgVal] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state, self.msg = proven(self.state, self.msg, self.roles_statuses)


@dataclass
class ListAppResponse:
    """One line of a listing.

    Attributes:
        app_id: the id that the engine gave.
        state: the state of the whole application.
        app_handle: the handle; filled in by the runner.
        name: the application's name.
        submitted_at: when it was submitted.
        started_at: when its first replica started.
        ended_at: when the last of it ended.
        exit_code: what the application ended with: 0, or the exit code of the replica that failed
            first (128 + N when signal N killed it); None while it runs or where nobody knows.
        msg: why it is in this state, one line.
    """

    app_id: str
    state: AppState
    app_handle: str = "<NOT_SET>"
    name: str = ""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    msg: str = ""

    def __post_init__(self) -> None:
        if self.state is AppState.SUCCEEDED and self.exit_code:
            self.state = AppState.FAILED


class Scheduler(abc.ABC, Generic[T]):
    """An engine that runs applications.

    Args:
        backend: the name of the scheduler in handles.
        session_name: the session part of the handles it makes.

    ``T`` is the type of its requests.
    """

    def __init__(self, backend: str, session_name: str) -> None:
        self.backend = backend
        self.session_name = session_name

    def close(self) -> None:
        """Gives back what this object holds in this process; running applications are not touched."""

    def submit(self, app: AppDef, cfg: Mapping[str, CfgVal], workspace: str | Workspace | None = None) -> str:
        """Submits an application.

        Args:
            app: what to run; never changed.
            cfg: run options, checked by :meth:`run_opts`.
            workspace: folders to lay over the image of the first role, and over the same image of others.

        Returns:
            The id of the application.
        """
        return self.schedule(self.submit_dryrun(app, cfg, workspace))

    @abc.abstractmethod
    def schedule(self, dryrun_info: AppDryRunInfo[T]) -> str:
        """Submits a request that :meth:`submit_dryrun` has made and returns the application's id."""

    def submit_dryrun(
        self, app: AppDef, cfg: Mapping[str, CfgVal], workspace: str | Workspace | None = None
    ) -> AppDryRunInfo[T]:
        """Makes the request that :meth:`submit` would send; contacts no engine, and writes nothing.

        Raises:
            InvalidRunConfigException: an option is unknown, missing or of the wrong type.
            UsageError: the application asks for what this engine cannot give.
        """
        # on demand, here and below: who only asks how an application fares need not know what one is
        from torchx.specs.app import resolve_overrides
        from torchx.specs.workspace import lay_over

        app = replace(app, roles=[resolve_overrides(role) for role in app.roles], metadata=dict(app.metadata))
        resolved = self.run_opts().resolve(cfg)
        self._pre_build_validate(app, self.backend, resolved)
        if workspace:
            lay_over(workspace, app.roles)
        notes = self._apply_workspaces(app, resolved) if any(role.workspace for role in app.roles) else []
        self._validate(app, self.backend, resolved)
        info = self._submit_dryrun(app, resolved)
        info.notes[:0] = notes
        info._app, info._cfg, info._scheduler = app, resolved, self.backend
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        return info

    @abc.abstractmethod
    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[T]:
        """Returns the request for an application; pure: no engine, no file is touched."""

    def run_opts(self) -> runopts:
        """Returns the run options that this scheduler takes, with those of its workspaces."""
        opts = self._run_opts()
        return opts | self.workspace_opts() if isinstance(self, BuildsWorkspaces) else opts

    def _run_opts(self) -> runopts:
        from torchx.specs.run_options import runopts

        return runopts()

    @abc.abstractmethod
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what is known of an application, None when the engine does not know it."""

    def describe_native(self, app_id: str) -> Any:
        """Returns the engine's own object for an application, None when it does not know it."""
        return None

    @abc.abstractmethod
    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterable[ListAppResponse]:
        """Returns the applications that the engine knows, newest first."""

    def reconcile(self, app_id: str) -> None:
        """Brings an application to its due state: ends what a failure leaves, for `wait` and `log -f`."""

    def exists(self, app_id: str) -> bool:
        """Tells whether the engine knows the application, running or ended."""
        return self.describe(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """Ends an application; nothing happens when it has ended already or is not known."""
        if self.exists(app_id):
            self._cancel_existing(app_id)

    @abc.abstractmethod
    def _cancel_existing(self, app_id: str) -> None:
        """Ends an application that is known to the engine."""

    def delete(self, app_id: str) -> None:
        """Removes an application from the engine with all that is kept of it; cancels it first."""
        if self.exists(app_id):
            self._delete_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """Removes an application that is known to the engine; an engine that keeps nothing cancels."""
        self._cancel_existing(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end.

        Args:
            app_id: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            regex: only lines in which this pattern is found.
            since: only lines written at or after this time.
            until: only lines written before this time.
            should_tail: go on until the application has ended.
            streams: which output; both in their true order unless told.

        Raises:
            NotImplementedError: the engine keeps no logs: neither this nor `LogChunks` is implemented.
        """
        if not isinstance(self, LogChunks):
            raise NotImplementedError(f"{self.backend} gives no access to logs")
        from torchx.scheduling.logs import LogQuery, Stream, lines_of

        stream = streams or Stream.COMBINED
        query = LogQuery({role_name: frozenset([k])}, regex, since, until, None, should_tail, stream)
        return lines_of(self.log_chunks(app_id, query))

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses an application before its workspace is built."""

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        """Refuses an application that this engine cannot run: by default, one without resources."""
        from torchx.specs.resources import NULL_RESOURCE

        for role in app.roles:
            if role.resource == NULL_RESOURCE:
                raise UsageError(f"role `{role.name}` has no resource, and {scheduler} needs one")

    def _apply_workspaces(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> Lines:
        """Prepares the workspaces of an application's roles, in the roles.

        Called at a dry-run when a role has one: it looks at the files (what
        :func:`torchx.workspace.tree.look_at` has found stands in the role then) and may set ``role.image``
        to what the image will be called. To copy, build and push is the work of :meth:`schedule`.

        Returns:
            What a person should know, a line each.

        Raises:
            UsageError: this scheduler takes no workspace, or not this one.
        """
        if isinstance(self, BuildsWorkspaces):
            self.build_workspaces(app.roles, cfg)
            return []
        raise UsageError(f"{self.backend} takes no workspace")

    def takes_workspaces(self, *, asked: bool = True) -> bool:
        """Tells whether this scheduler lays workspaces over images.

        Args:
            asked: someone asks for this one; else the configuration of a project has one for all runs, and
                replicas that see the files of this machine as they are can do without a copy of them.
        """
        prepares = type(self)._apply_workspaces is not Scheduler._apply_workspaces
        return prepares or isinstance(self, BuildsWorkspaces)


def replicas_of(
    app: AppDef, *, app_id: str, img_root: str, rank0_env: str
) -> Iterator[tuple[Role, int, Role]]:
    """Yields every replica of an application with its macros filled in: the one place that does so.

    Args:
        app: the application; left as it is.
        app_id: its id.
        img_root: where the image lies as the replica sees it.
        rank0_env: name of the environment variable that holds the host of replica 0 of the first role.

    Yields:
        The role, the replica's id within it, and a copy of the role as that replica has it.
    """
    from torchx.specs.macro import macros

    for role in app.roles:
        for replica in range(role.num_replicas):
            values = macros.Values(
                img_root=img_root, app_id=app_id, replica_id=str(replica), rank0_env=rank0_env
            )
            yield role, replica, values.apply(role)


def filter_regex(regex: str, data: Iterable[str]) -> Iterable[str]:
    """Yields the lines in which a pattern is found.

    >>> list(filter_regex("o", ["one", "three", "two"]))
    ['one', 'two']
    """
    import re

    search = re.compile(regex).search
    return (line for line in data if search(line))


def split_lines(text: str) -> list[str]:
    r"""Returns the lines of a text, each with its line end.

    >>> split_lines("a\nb")
    ['a\n', 'b']
    """
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + ([last] if last else [])
