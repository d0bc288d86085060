"""The runner: submits applications to any scheduler, and manages them by handle."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports, lazy_names
from torchx.runner import origins, resolve
from torchx.runner.applications import Applications
from torchx.scheduling.base import BuildsImages, NeedsWatcher, Shared
from torchx.scheduling.notes import as_note
from torchx.specs.handles import make_app_handle
from torchx.suggestions import without_password

with lazy_imports:
    from torchx.provenance import submission
    from torchx.runner import components, notifications, provenance, scripts
    from torchx.runner import once as runner_once
    from torchx.runner import prepare as runner_prepare
    from torchx.runner import sweeps as runner_sweeps
    from torchx.specs import app as specs_app
    from torchx.specs import workspace as specs_workspace
    from torchx.workspace import options as workspace_options

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.schedulers import SchedulerFactory
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx.specs.run_options import RunOptions
    from torchx.specs.workspace import Workspace

DEFAULT_NAME = "torchx"


# other packages import it from here
__getattr__ = lazy_names(__name__, {"Stream": "torchx.scheduling.logs"})


Words = list[str]
# named here, since within the class `list` is a method


class Runner(Applications):
    """Submits and manages applications; a context manager that closes its schedulers.

    Thread-safe: calls are independent, and do not change their arguments.

    Args:
        name: the session part of the handles it makes.
        scheduler_factories: the schedulers by name (default: all installed ones).
        component_defaults: default arguments by component name.
        scheduler_params: keyword arguments for the factories of the schedulers.

    Attributes:
        holds_workspaces: a dry-run keeps the files of a workspace; the command line, which submits a request
            immediately, leaves that out.

    Raises:
        UsageError: the name cannot be part of a handle.

    Example::

        with get_runner() as runner:
            handle = runner.run_component("utils.echo", ["--msg", "hi"], "local_cwd")
            runner.wait(handle)
    """

    holds_workspaces = True

    def __init__(
        self,
        name: str = DEFAULT_NAME,
        scheduler_factories: Mapping[str, SchedulerFactory] | None = None,
        component_defaults: Mapping[str, Mapping[str, str]] | None = None,
        scheduler_params: Mapping[str, object] | None = None,
    ) -> None:
        if "/" in name or name in (".", ".."):
            raise UsageError(f"a session cannot be called `{name}`: it is a part of handles, between slashes")
        super().__init__(name, scheduler_factories, scheduler_params)
        self._component_defaults = {k: dict(v) for k, v in (component_defaults or {}).items()}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run_component(
        self,
        component: str,
        component_args: Words | Data,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
    ) -> str:
        """Builds an application from a component and submits it, as :meth:`run` does.

        Args:
            component: the name of the component.
            component_args: its arguments, as command-line arguments or by name.
            scheduler, cfg, workspace, parent_run_id: as for :meth:`run`.

        Returns:
            The handle of the application.

        Raises:
            UsageError: the component, its arguments, the scheduler or the options are invalid.
            StateError: the scheduler cannot accept it now.
        """
        return self._schedule_recorded(
            self.dryrun_component(component, component_args, scheduler, cfg, workspace, parent_run_id)
        )

    def dryrun_component(
        self,
        component: str,
        component_args: Words | Data,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
    ) -> AnyDryRunInfo:
        """Makes the request that :meth:`run_component` would send; same arguments and errors."""
        app = components.build(component, component_args, self._component_defaults.get(component))
        return self.dryrun(app, scheduler, cfg, workspace, parent_run_id)

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        dryrun: Literal[False] = False,
        *,
        once: str = "",
    ) -> str: ...

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: bool,
        once: str = "",
    ) -> str | AnyDryRunInfo: ...

    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
        dryrun: bool = False,
        *,
        once: str = "",
    ) -> str | AnyDryRunInfo:
        """Submits an application.

        Args:
            app: the application; not changed.
            scheduler: the scheduler.
            cfg: run options of the scheduler.
            workspace: folders to send with it, for the first role and others of the same image.
            parent_run_id: the parent run.
            dryrun: only make the request, as :meth:`dryrun` does.
            once: a name under which an application is submitted at most once: if one exists, whatever its
                state, nothing is submitted, and its handle is returned.

        Returns:
            The handle of the application; for a dry-run, the request.

        Raises:
            UsageError: the application, the scheduler or the options are invalid, or the name ``once``
                belongs to an application with other arguments.
            StateError: the scheduler cannot accept it now.
        """
        if once:
            app = runner_once.marked(app, once)
        info = self.dryrun(app, scheduler, cfg, workspace, parent_run_id)
        return info if dryrun else self._schedule_recorded(info)

    def _schedule_recorded(self, info: AnyDryRunInfo) -> str:
        """Submits a request, and begins the record of its source."""
        if not submission.is_enabled():
            return self.schedule(info)
        facts = submission.look()
        handle = self.schedule(info)
        if not info.existed:
            with as_note(info.notes, "its source is not recorded"):
                info.notes += filter(None, [provenance.begin(self, handle, info, facts)])
        return handle

    def dryrun(
        self,
        app: AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        parent_run_id: str | None = None,
    ) -> AnyDryRunInfo:
        """Makes the request that :meth:`run` would send; contacts no engine. Same arguments and errors.

        The request keeps the files of a workspace of up to 256 MB in memory: its folder may be removed before
        :meth:`schedule`.
        """
        runner_prepare.check_kinds(app)
        masked = None if workspace is None else without_password(str(workspace))
        with self._event("dryrun", scheduler, app=app, cfg=cfg, workspace=masked):
            engine = self.scheduler(scheduler)
            ready = runner_prepare.prepare(app, scheduler, self._name, parent_run_id, self.load_config)
            before = workspace_options.hold.set(self.holds_workspaces)
            try:
                info = engine.submit_dryrun(ready, cfg or {}, workspace)
            finally:
                workspace_options.hold.reset(before)
            info.scheduler = scheduler
            return info

    def sweep(
        self,
        component: str,
        parameters: Mapping[str, Iterable[Any]] | Iterable[Data],
        scheduler: str,
        component_args: Words | Data = (),  # type: ignore[assignment]
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
        at_once: int | None = None,
    ) -> str:
        """Submits many runs of a component, or those that an earlier submission lacks.

        Args:
            component: the name of the component.
            parameters: the values of each parameter, combined as a grid; or the parameters of each run.
            scheduler, component_args, cfg, workspace: as for :meth:`run_component`, without the parameters.
            at_once: maximum number of runs at a time; 0 for all (default: 1 on this machine, else all).

        Returns:
            The handle of all runs together.

        Raises:
            UsageError: a parameter is unknown, or an argument of a run is invalid; nothing is submitted.
            StateError: the sweep cannot be recorded.
        """
        return runner_sweeps.sweep(
            self, component, parameters, scheduler, component_args, cfg or {}, workspace, at_once
        )

    def schedule(self, dryrun_info: AnyDryRunInfo) -> str:
        """Submits a request of :meth:`dryrun`, possibly modified, and returns the handle.

        Raises:
            StateError: the scheduler cannot accept it now.
            UsageError: the scheduler cannot send its notifications.
            ValueError: the request has no scheduler.
        """
        scheduler = dryrun_info.scheduler
        if not scheduler:
            raise ValueError("this request was not made by a runner: it has no scheduler")
        app = dryrun_info.app
        if app is not None and app.metadata.get(settings.ONCE):
            return runner_once.submit(self, dryrun_info, lambda: self._schedule(scheduler, dryrun_info))
        return self._schedule(scheduler, dryrun_info)

    def _schedule(self, scheduler: str, dryrun_info: AnyDryRunInfo) -> str:
        engine = self.scheduler(scheduler)
        plan = None if engine.sends_notifications else dryrun_info.notify
        if plan is not None:
            notifications.check(plan, scheduler, stalls=bool(dryrun_info.cfg.get("stall")))
        if dryrun_info.app is not None:
            scripts.require_scripts(dryrun_info.app, engine)
        with self._event("schedule", scheduler, app=dryrun_info.app, cfg=dryrun_info.cfg) as call:
            call.event.app_id = app_id = engine.schedule(dryrun_info)
        handle = make_app_handle(scheduler, self._name, app_id)
        if dryrun_info.app is not None:
            self._apps[handle] = dryrun_info.app
        resolve.remember_last(handle)
        if isinstance(engine, Shared):
            origins.remember(handle)
        lost = "no notifications are sent" if plan is not None else "torchx wait starts its retries"
        with as_note(dryrun_info.notes, lost):
            watched = isinstance(engine, NeedsWatcher) and engine.needs_watcher(dryrun_info)
            if plan is not None or watched:
                notifications.request(self, handle, plan, stalls=bool(dryrun_info.cfg.get("stall")))
        return handle

    def build_workspace(
        self,
        app: specs_app.AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | specs_workspace.Workspace | None = None,
    ) -> specs_app.AppDef:
        """Builds the images of an application's workspaces; runs nothing.

        Args:
            app: the application; not changed.
            scheduler, cfg, workspace: as for :meth:`run`.

        Returns:
            A copy of the application whose roles have these images instead of workspaces; unchanged for
            schedulers that do not build images.

        Raises:
            UsageError: the scheduler does not accept this workspace.
            StateError: an image cannot be built or pushed.
        """
        runner_prepare.check_kinds(app)
        ready = specs_app.AppDef(
            app.name, [specs_app.resolve_overrides(role) for role in app.roles], dict(app.metadata)
        )
        info = self.dryrun(ready, scheduler, cfg, workspace)
        assert info.app is not None
        engine = self.scheduler(scheduler)
        if isinstance(engine, BuildsImages):
            engine.build_planned_images(info)
        for role, done in zip(ready.roles, info.app.roles, strict=True):
            still = done.workspace.projects if done.workspace else {}
            role.image, role.workspace = done.image, specs_workspace.Workspace(dict(still)) if still else None
        return ready

    def resolve_handle(self, text: str, prefer: Collection[str] = (), patience: float | None = None) -> str:
        """Returns the handle of a short name, see :func:`torchx.runner.resolve.resolve`.

        Args:
            text: the short name.
            prefer: if several applications match, consider only those in these states.
            patience: maximum seconds of a query of several schedulers (default: a few).
        """
        return resolve.resolve(self, text, prefer, patience)


def get_runner(
    name: str | None = None,
    component_defaults: Mapping[str, Mapping[str, str]] | None = None,
    **scheduler_params: Any,
) -> Runner:
    """Returns a runner for all installed schedulers.

    Environment variables ``TORCHX_<NAME>`` become keyword arguments ``<name>`` of the schedulers'
    factories; the arguments of this function take precedence.

    Args:
        name: the session part of the handles it makes.
        component_defaults: default arguments by component name.
        scheduler_params: keyword arguments for the factories of the schedulers.
    """
    from_env = {
        key.removeprefix("TORCHX_").lower(): value
        for key, value in os.environ.items()
        if key.startswith("TORCHX_")
    }
    params = {**from_env, **scheduler_params}
    return Runner(name or DEFAULT_NAME, None, component_defaults, params)
