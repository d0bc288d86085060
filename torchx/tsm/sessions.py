"""The interface of sessions: applications under one name, and their operations."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from torchx.errors import UsageError
from torchx.specs import (
    MISSING,
    UNKNOWN,
    AppDef,
    AppHandle,
    AppStatus,
    CfgVal,
    parse_app_handle,
    runopts,
)
from torchx.specs.app import AnyDryRunInfo
from torchx.specs.run_options import RunOptions
from torchx.tsm.application import Application
from torchx.tsm.errors import AppNotReRunnableException, SessionMismatchException

S = TypeVar("S", bound="Session")
Names = list[str]
# named here, since within the class `list` is a method


class RunConfig(dict[str, CfgVal]):
    """Run options of a scheduler by name; any mapping does as well.

    >>> RunConfig().set("log_dir", "/tmp/logs").get("log_dir")
    '/tmp/logs'
    """

    def set(self, key: str, value: CfgVal) -> RunConfig:
        """Sets one option."""
        self[key] = value
        return self


class Session(abc.ABC):
    """Applications under one name, and all that can be done with them; :func:`torchx.tsm.session` makes one.

    Its name is in the handles that it gives, and only applications of that name are its own;
    :meth:`attach` adopts others. A custom session implements the abstract methods.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        if "/" in name or name in (".", ".."):
            raise UsageError(f"a session cannot be called `{name}`: it is a part of handles, between slashes")
        self._name = name

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def name(self) -> str:
        """Returns the name of this session."""
        return self._name

    def close(self) -> None:  # noqa: B027  # most sessions hold nothing
        """Releases the resources of this process; does not affect running applications."""

    def run(self, app: AppDef, scheduler: str = "default", cfg: RunOptions | None = None) -> AppHandle:
        """Submits an application.

        Args:
            app: what to run; never changed.
            scheduler: where to run it.
            cfg: run options of the scheduler.

        Returns:
            The handle of the application.

        Raises:
            AppNotReRunnableException: it was read back from its scheduler and is incomplete.
            UsageError: the application, the scheduler or the options cannot be right.
            StateError: the scheduler cannot take it now.
        """
        return self.schedule(self.dryrun(app, scheduler, cfg))

    def dryrun(self, app: AppDef, scheduler: str = "default", cfg: RunOptions | None = None) -> AnyDryRunInfo:
        """Makes the request that :meth:`run` would send; same arguments and errors."""
        if isinstance(app, Application) and app.is_attached:
            _check_complete(app)
        return self._dryrun(app, scheduler, cfg or {})

    @abc.abstractmethod
    def _dryrun(self, app: AppDef, scheduler: str, cfg: RunOptions) -> AnyDryRunInfo:
        """Makes the request for a complete application."""

    @abc.abstractmethod
    def schedule(self, dryrun_info: AnyDryRunInfo) -> AppHandle:
        """Submits a request of :meth:`dryrun`, changed since or not, and returns the handle."""

    def submit(self, dryrun_info: AnyDryRunInfo) -> AppHandle:
        """The same as :meth:`schedule`."""
        return self.schedule(dryrun_info)

    @abc.abstractmethod
    def scheduler_backends(self) -> Names:
        """Returns the scheduler names that :meth:`run` accepts, ``default`` first."""

    @abc.abstractmethod
    def run_opts(self) -> dict[str, runopts]:
        """Returns the run options of all schedulers by their names."""

    @abc.abstractmethod
    def attach(self, app_handle: AppHandle) -> AppHandle:
        """Adopts an application of another session.

        Returns:
            The handle of the application in this session; the original handle is accepted too.

        Raises:
            UnknownAppException: its scheduler does not know it.
        """

    @abc.abstractmethod
    def status(self, app_handle: AppHandle) -> AppStatus | None:
        """Returns the status of an application, None if its scheduler does not know it.

        Raises:
            SessionMismatchException: it does not belong to this session; so do all methods below.
        """

    @abc.abstractmethod
    def wait(
        self, app_handle: AppHandle, wait_interval: float | str = 10, timeout: float | str | None = None
    ) -> AppStatus | None:
        """Blocks until an application has ended, see :meth:`torchx.runner.Runner.wait`.

        Returns:
            Its status at the end or after the timeout; None if its scheduler does not know it.
        """

    @abc.abstractmethod
    def stop(self, app_handle: AppHandle) -> None:
        """Cancels an application; does nothing if it has ended or is unknown."""

    @abc.abstractmethod
    def describe(self, app_handle: AppHandle) -> Application | None:
        """Returns an application as its scheduler describes it, None if it does not know it."""

    @abc.abstractmethod
    def list(self) -> dict[AppHandle, Application]:
        """Returns the applications of this session by handle, the oldest first."""

    @abc.abstractmethod
    def log_lines(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool | None = None,
    ) -> Iterable[str]:
        """Returns the log lines of one replica, each with its line end.

        Args:
            app_handle: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            regex: only lines in which this pattern is found.
            since, until: only lines of this time.
            should_tail: follow until the application has ended (default: only without ``until``).

        Raises:
            UnknownAppException: its scheduler does not know the application.
        """

    def _belongs(self, app_handle: AppHandle) -> None:
        """Rejects a handle of another session."""
        if parse_app_handle(app_handle).session_name != self._name:
            raise SessionMismatchException(app_handle, self._name)


def _check_complete(app: Application) -> None:
    if not app.roles:
        raise AppNotReRunnableException(app.name, "its roles")
    for role in app.roles:
        for what in ("entrypoint", "image"):
            if getattr(role, what) in (MISSING, UNKNOWN):
                raise AppNotReRunnableException(app.name, f"the {what} of role `{role.name}`")
