"""The runner: one object that submits applications to any scheduler, and looks after them by handle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchx.runner import resolve
from torchx.runner.engines import Engines
from torchx.runner.status import status_of
from torchx.scheduler import DescribeAppResponse, Glances, Kills, ListAppResponse, LogChunks, Waits
from torchx.specs.handles import UnknownAppException, make_app_handle

if TYPE_CHECKING:
    from torchx.logs import LogChunk, LogQuery, Stream
    from torchx.schedulers import SchedulerFactory
    from torchx.specs.app import AppDef
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.run_options import CfgVal
    from torchx.specs.status import AppStatus

DEFAULT_NAME = "torchx"
Words = list[str]
Apps = list[ListAppResponse]
# named here, since within the class `list` is a method
_FIRST_LOOK = 0.05
"""Seconds before a scheduler that cannot wake us is asked for the second time."""


class Runner(Engines):
    """Submits applications and looks after them; a context manager that closes its schedulers.

    Args:
        name: the session part of the handles it makes.
        scheduler_factories: the schedulers by name; all that are installed unless given.
        component_defaults: arguments by component name, for those that are not given.
        scheduler_params: keyword arguments for the factories of the schedulers.

    Example::

        with get_runner() as runner:
            handle = runner.run_component("utils.echo", ["--msg", "hi"], "local_cwd")
            runner.wait(handle)
    """

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        scheduler_factories: Mapping[str, SchedulerFactory] | None = None,
        component_defaults: Mapping[str, Mapping[str, str]] | None = None,
        scheduler_params: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(name, scheduler_factories, scheduler_params)
        self._component_defaults = {k: dict(v) for k, v in (component_defaults or {}).items()}

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run_component(
        self,
        component: str,
        component_args: Words | Mapping[str, Any],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
    ) -> str:
        """Makes an application from a component and submits it, as :meth:`run` does.

        Args:
            component: the name of the component.
            component_args: its arguments, as words of a command line or by name.
            scheduler, cfg, workspace, parent_run_id: as for :meth:`run`.

        Returns:
            The handle of the application.

        Raises:
            UsageError: the component, its arguments, the scheduler or the options cannot be right.
            StateError: the scheduler cannot take it now.
        """
        return self.schedule(
            self.dryrun_component(component, component_args, scheduler, cfg, workspace, parent_run_id)
        )

    def dryrun_component(
        self,
        component: str,
        component_args: Words | Mapping[str, Any],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
    ) -> AppDryRunInfo[Any]:
        """Makes the request that :meth:`run_component` would send; same arguments and errors."""
        from torchx.runner.components import build

        app = build(component, component_args, self._component_defaults.get(component))
        return self.dryrun(app, scheduler, cfg, workspace, parent_run_id)

    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
        dryrun: bool = False,
    ) -> str:
        """Submits an application.

        Args:
            app: what to run; never changed.
            scheduler: where to run it.
            cfg: run options of the scheduler.
            workspace: local folder to lay over the image of the first role.
            parent_run_id: the run that this one belongs to.
            dryrun: make the request only; the handle then ends in the word that stands for its id.

        Returns:
            The handle of the application.

        Raises:
            UsageError: the application, the scheduler or the options cannot be right.
            StateError: the scheduler cannot take it now.
        """
        info = self.dryrun(app, scheduler, cfg, workspace, parent_run_id)
        if dryrun:
            return make_app_handle(scheduler, self._name, "dryrun")
        return self.schedule(info)

    def dryrun(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
    ) -> AppDryRunInfo[Any]:
        """Makes the request that :meth:`run` would send; contacts no engine. Same arguments and errors."""
        from torchx.runner.prepare import prepare

        with self._event("dryrun", scheduler, workspace=workspace):
            engine = self._scheduler(scheduler)
            ready = prepare(app, scheduler, self._name, parent_run_id)
            info = engine.submit_dryrun(ready, cfg or {}, workspace)
            info._scheduler = scheduler
            return info

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Submits a request of :meth:`dryrun`, changed since or not, and returns the handle.

        Raises:
            StateError: the scheduler cannot take it now.
            ValueError: the request names no scheduler.
        """
        scheduler = dryrun_info._scheduler
        if not scheduler:
            raise ValueError("this request was not made by a runner: it names no scheduler")
        app = dryrun_info.app
        image = app.roles[0].image if app is not None and app.roles else None
        with self._event("schedule", scheduler, app_image=image) as call:
            call.event.app_id = app_id = self._scheduler(scheduler).schedule(dryrun_info)
        handle = make_app_handle(scheduler, self._name, app_id)
        resolve.remember_last(handle)
        return handle

    def build_workspace(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal] | None = None) -> AppDef:
        """Returns a copy of an application as it would be sent, with its workspaces in its images."""
        built = self.dryrun(app, scheduler, cfg).app
        assert built is not None
        return built

    def resolve_handle(self, text: str) -> str:
        """Returns the handle that a short name means, see :func:`torchx.runner.resolve.resolve`."""
        return resolve.resolve(self, text)

    def description(self, app_handle: str, *, brief: bool = False) -> DescribeAppResponse | None:
        """Returns all that the scheduler knows of an application, None when it does not know it.

        Args:
            app_handle: the application.
            brief: how it fares is enough: roles and metadata may be left out.
        """
        scheduler, app_id = self._of(app_handle)
        if brief and isinstance(scheduler, Glances):
            return scheduler.glance(app_id)
        with self._event("describe", scheduler.backend, app_id):
            return scheduler.describe(app_id)

    def status(self, app_handle: str) -> AppStatus | None:
        """Returns how an application fares, None when the scheduler does not know it."""
        described = self.description(app_handle, brief=True)
        return None if described is None else status_of(described)

    def wait(
        self, app_handle: str, wait_interval: float = 10, timeout: float | None = None
    ) -> AppStatus | None:
        """Blocks until an application has ended.

        Args:
            app_handle: the application.
            wait_interval: seconds between two looks at most, where the scheduler cannot wake us.
            timeout: seconds to wait at most; None for ever.

        Returns:
            How it ended, or how it fares when the time is up; None when the scheduler does not know it.
        """
        scheduler, app_id = self._of(app_handle)
        interval = min(_FIRST_LOOK, wait_interval)
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            status = self.status(app_handle)
            left = None if end is None else end - time.monotonic()
            if status is None or status.is_terminal() or (left is not None and left <= 0):
                return status
            if isinstance(scheduler, Waits):
                if scheduler.wait(app_id, left):
                    return self.status(app_handle)
                continue
            time.sleep(interval if left is None else min(interval, left))
            interval = min(interval * 1.5, wait_interval)

    def wakes(self, app_handle: str) -> bool:
        """Tells whether :meth:`wait` is woken at the end of an application, or has to look for it."""
        return isinstance(self._of(app_handle)[0], Waits)

    def cancel(self, app_handle: str) -> None:
        """Ends an application; nothing happens when it has ended or is not known."""
        scheduler, app_id = self._of(app_handle)
        with self._event("cancel", scheduler.backend, app_id):
            scheduler.cancel(app_id)

    def kill(self, app_handle: str) -> None:
        """Ends an application at once, where the scheduler can, with no time to clean up."""
        scheduler, app_id = self._of(app_handle)
        with self._event("kill", scheduler.backend, app_id):
            scheduler.kill(app_id) if isinstance(scheduler, Kills) else scheduler.cancel(app_id)

    def stop(self, app_handle: str) -> None:
        """The older name of :meth:`cancel`."""
        import warnings

        warnings.warn("Runner.stop is now Runner.cancel", DeprecationWarning, stacklevel=2)
        self.cancel(app_handle)

    def delete(self, app_handle: str) -> None:
        """Removes an application with all that is kept of it; cancels it first."""
        scheduler, app_id = self._of(app_handle)
        with self._event("delete", scheduler.backend, app_id):
            scheduler.delete(app_id)

    def describe(self, app_handle: str) -> AppDef | None:
        """Returns an application as the scheduler knows it, None when it does not know it."""
        from torchx.specs.app import AppDef

        found = self.description(app_handle)
        return None if found is None else AppDef(found.name or found.app_id, found.roles, found.metadata)

    def list(self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None) -> Apps:
        """Returns the applications that a scheduler knows, newest first.

        Args:
            scheduler: which scheduler.
            cfg: its run options, where it needs some to be reached.
        """
        from torchx.selection import AppQuery

        with self._event("list", scheduler):
            return [*self.select(scheduler, AppQuery(), cfg)]

    def log_lines(
        self,
        app_handle: str,
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
            app_handle: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            regex: only lines in which this pattern is found.
            since, until: only lines of this time.
            should_tail: go on until the application has ended.
            streams: which output; what the scheduler prefers unless told.

        Raises:
            UnknownAppException: the scheduler does not know the application.
        """
        scheduler, app_id = self._of(app_handle)
        if not scheduler.exists(app_id):
            raise UnknownAppException(app_handle)
        return scheduler.log_iter(app_id, role_name, k, regex, since, until, should_tail, streams)

    def log_chunks(self, app_handle: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log lines of any replicas as one stream, in the order of time where that is known.

        Raises:
            UnknownAppException: the scheduler does not know it.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, LogChunks):
            return scheduler.log_chunks(app_id, query)
        described = scheduler.describe(app_id)
        if described is None:
            raise UnknownAppException(app_handle)
        from torchx.runner.logs import merged

        return merged(scheduler, app_id, described.roles, query)


def get_runner(
    name: str | None = None,
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
    **scheduler_params: Any,
) -> Runner:
    """Returns a runner for all schedulers that are installed.

    Environment variables ``TORCHX_<NAME>`` become keyword arguments ``<name>`` of the schedulers'
    factories; what is given here comes before them.

    Args:
        name: the session part of the handles it makes.
        component_defaults: arguments by component name, for those that are not given.
        scheduler_params: keyword arguments for the factories of the schedulers.
    """
    from_env = {
        key.removeprefix("TORCHX_").lower(): value
        for key, value in os.environ.items()
        if key.startswith("TORCHX_")
    }
    params = {**from_env, **scheduler_params}
    return Runner(name or DEFAULT_NAME, None, component_defaults, params)
