"""The runner: submits applications to any scheduler, and manages them by handle."""

from __future__ import annotations

import copy
import heapq
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, overload

from torchx import settings
from torchx.errors import StateError, TorchxError, UsageError
from torchx.lazy import lazy_imports, lazy_names
from torchx.runner import origins, resolve
from torchx.scheduling.base import (
    AnyScheduler,
    BuildsImages,
    DescribeAppResponse,
    Diagnoses,
    Executes,
    ForwardsPorts,
    Glances,
    KeepsProvenance,
    Kills,
    ListAppResponse,
    LogChunks,
    Measures,
    NeedsWatcher,
    Outlines,
    Prunes,
    Selects,
    Shared,
    Summarizes,
    Waits,
)
from torchx.scheduling.notes import as_note
from torchx.scheduling.pace import LONGEST, deadline, pause_after, seconds_left, sharing
from torchx.scheduling.responses import AppList, status_of
from torchx.specs.handles import (
    UnknownAppException,
    UnknownSchedulerException,
    make_app_handle,
    parse_app_handle,
)
from torchx.suggestions import without_password
from torchx.sweeps import BACKEND as SWEEPS

with lazy_imports:
    from torchx import config
    from torchx import schedulers as torchx_schedulers
    from torchx.jobs import hidden, paths
    from torchx.provenance import store, submission
    from torchx.runner import components, events, logs, notifications, provenance, reports, survey
    from torchx.runner import once as runner_once
    from torchx.runner import prepare as runner_prepare
    from torchx.runner import stacks as runner_stacks
    from torchx.runner import sweeps as runner_sweeps
    from torchx.scheduling import checks, findings, stalls
    from torchx.scheduling import query as app_query
    from torchx.specs import app as specs_app
    from torchx.specs import checks as specs_checks
    from torchx.specs import workspace as specs_workspace
    from torchx.sweeps import delayed, delayed_scheduler
    from torchx.sweeps import paths as sweep_paths
    from torchx.sweeps import results as sweep_results
    from torchx.sweeps import scheduler as sweep_scheduler
    from torchx.workspace import options as workspace_options

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from torchx.config import Config
    from torchx.json_limits import Data
    from torchx.notifications.store import Delivery
    from torchx.provenance.model import File, Provenance
    from torchx.runner.events import log_event
    from torchx.schedulers import SchedulerFactory
    from torchx.scheduling.events import AppEvent
    from torchx.scheduling.logs import LogChunk, LogQuery, Stream
    from torchx.scheduling.measurement import AppUsage
    from torchx.scheduling.query import AppQuery, Pruned
    from torchx.scheduling.stacks import AppStacks
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx.specs.run_options import OptionValues, RunOptions, runopts
    from torchx.specs.status import AppStatus
    from torchx.specs.workspace import Workspace
    from torchx.sweeps.delayed import Delayed
    from torchx.sweeps.results import Results

DEFAULT_NAME = "torchx"

_FIRST_LOOK = 0.05
"""Seconds before the second poll of a scheduler without wake-up."""

_FOUND_FOR = 10.0
"""Seconds for which the scheduler of a handle is known: a command makes several queries of one application.

Another process may add secrets to an application, so they are read again then.
"""

_MOST_FOUND = 1_000
"""Maximum number of handles with a known scheduler: a runner may live for weeks."""

# other packages import it from here
__getattr__ = lazy_names(__name__, {"Stream": "torchx.scheduling.logs"})


# named here, since within the class `list` is a method
Words = list[str]
Deliveries = list["Delivery"]


class Runner:
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
        report_completed: gets the beginning of an app id and the handle that it means; the command line
            prints them.
        load_config: returns the configuration; the command line sets it, to read the files only once.

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
        self._name = name
        self._factories = scheduler_factories
        self._scheduler_params = dict(scheduler_params or {})
        self._schedulers: dict[str, AnyScheduler] = {}
        self._making = threading.Lock()
        self._targets: dict[str, tuple[float, tuple[AnyScheduler, str]]] = {}
        # submitted by this runner; derived runners of other packages fill it
        self._apps: dict[str, AppDef] = {}
        self.default_scheduler = torchx_schedulers.get_default_scheduler_name()
        self.load_config: Callable[[], Config] = lambda: config.load_config()
        self.report_completed: Callable[[str, str], object] = lambda text, handle: None
        self._component_defaults = {k: dict(v) for k, v in (component_defaults or {}).items()}

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the schedulers; does not affect running applications."""
        with self._making:
            schedulers, self._schedulers = list(self._schedulers.values()), {}
            self._targets.clear()
        for scheduler in schedulers:
            scheduler.close()

    def scheduler(self, name: str) -> AnyScheduler:
        """Returns the scheduler of a name; all calls return the same object.

        Raises:
            UnknownSchedulerException: no scheduler has this name.
        """
        made = self._schedulers.get(name)
        if made is None:
            with self._making:  # one of two concurrent threads creates it for both
                made = self._schedulers.get(name)
                if made is None:
                    made = self._schedulers[name] = self._make(name)
        return made

    _scheduler = scheduler  # the name that derived runners of other packages call

    def scheduler_of(self, app_handle: str) -> AnyScheduler:
        """Returns the scheduler of an application.

        Raises:
            MalformedAppHandleException: the text is not a handle.
            UnknownSchedulerException: no scheduler has its name.
        """
        return self._of(app_handle)[0]

    def scheduler_backends(self) -> Words:
        """Returns the names of the schedulers."""
        return list(self._known())

    def listed_backends(self) -> Words:
        """Returns the names of the schedulers that may have applications; of sweeps, if any exist."""
        sweeps = [SWEEPS] if sweep_paths.known() else []
        return list(dict.fromkeys([*self.scheduler_backends(), *sweeps]))

    def cheap_schedulers(self) -> Words:
        """Returns the names of the schedulers whose listing takes milliseconds and no network."""
        cheap = []
        for name in self.listed_backends():
            with suppress(*survey.EXPECTED):  # not available
                if self.scheduler(name).cheap_to_list:
                    cheap.append(name)
        return cheap

    def scheduler_run_opts(self, scheduler: str) -> runopts:
        """Returns the run options of a scheduler.

        Raises:
            UnknownSchedulerException: no scheduler has this name.
        """
        return self.scheduler(scheduler).run_opts()

    def takes_workspace(self, scheduler: str, *, requested: bool = True) -> bool:
        """Returns True if a scheduler honours workspaces.

        Args:
            scheduler: the scheduler.
            requested: the user requested it for this run; otherwise it comes from a configuration file.

        Raises:
            UnknownSchedulerException: no scheduler has this name.
        """
        return self.scheduler(scheduler).takes_workspaces(requested=requested)

    def exists(self, app_handle: str) -> bool:
        """Returns True if the scheduler knows an application."""
        scheduler, app_id = self._of(app_handle)
        return scheduler.exists(app_id)

    def describe_native(self, app_handle: str) -> Any:
        """Returns the scheduler's own object for an application, or None."""
        scheduler, app_id = self._of(app_handle)
        with self._event("describe_native", scheduler.backend, app_id):
            return scheduler.describe_native(app_id)

    def execute(
        self, app_handle: str, role_name: str, k: int, command: Sequence[str], streams: Streams
    ) -> int:
        """Runs a program in a running replica and returns its exit code.

        Args:
            app_handle, role_name, k: the application, the role, and the id of the replica within it.
            command: the program and its arguments; no shell.
            streams: its input and output.

        Raises:
            UsageError: the scheduler cannot run programs in replicas.
            StateError: the replica is not running, or has no such program.
        """
        scheduler, app_id = self._of(app_handle)
        if not isinstance(scheduler, Executes):
            raise _not_supported(scheduler.backend, "run programs in its replicas")
        return scheduler.execute(app_id, role_name, k, command, streams)

    def port_connector(self, app_handle: str, role_name: str, k: int, port: str) -> Callable[[], socket]:
        """Returns a function that opens connections to a port of a replica; see :class:`ForwardsPorts`."""
        scheduler, app_id = self._of(app_handle)
        if not isinstance(scheduler, ForwardsPorts):
            raise _not_supported(scheduler.backend, "connect to ports of its replicas")
        return scheduler.port_connector(app_id, role_name, k, port)

    def select(
        self, scheduler: str, query: AppQuery, cfg: RunOptions | None = None
    ) -> Iterator[ListAppResponse]:
        """Yields the matching applications of a scheduler, newest first, lazily.

        Args:
            scheduler: the scheduler.
            query: the filter.
            cfg: the scheduler's run options, if it needs some to connect.
        """
        engine = self.scheduler(scheduler)
        resolved = None
        if cfg:
            resolved = engine.run_opts().resolve(cfg)
        if isinstance(engine, Selects):
            found: Iterable[ListAppResponse] = engine.select(query)
        else:
            found = (each for each in engine.list(resolved) if each.matches(query))
        sweeps = frozenset(sweep_paths.known())
        if sweeps and scheduler != SWEEPS:
            waiting = delayed_scheduler.DelayedScheduler(self._name, self.scheduler).waiting(query, scheduler)
            found = heapq.merge(found, waiting, key=attrgetter("order"), reverse=True)
        for app in found:
            if sweep_paths.sweep_of_run(app.run or app.app_id)[0] in sweeps and app.app_id != query.called:
                continue  # one row for all of its runs
            if app.app_handle == ListAppResponse.app_handle:
                app.app_handle = make_app_handle(scheduler, self._name, app.app_id)
            if app.needs_reconcile:
                with suppress(TorchxError):  # must not hide the others
                    owner, app_id = self._of(app.app_handle)
                    owner.reconcile(app_id)
                    if engine.has_runs and isinstance(engine, Selects):
                        app = next(engine.select(app_query.AppQuery(called=app.app_id)), app)
            yield app

    def has(self, scheduler: str, ability: type) -> bool:
        """Returns True if a scheduler implements an optional protocol, such as ``Prunes``."""
        return isinstance(self.scheduler(scheduler), ability)

    def diagnose(self, scheduler: str) -> Iterable[findings.Finding]:
        """Checks the engine of a scheduler and returns the findings.

        Raises:
            TorchxError: the scheduler implements no checks and cannot be reached.
        """
        engine = self.scheduler(scheduler)
        if isinstance(engine, Diagnoses):
            return engine.diagnose()
        next(iter(engine.list()), None)
        return [findings.Finding("engine", findings.Verdict.GOOD, "reachable")]

    def prune(self, scheduler: str, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications of a scheduler, and leftovers it knows of.

        Args:
            scheduler: the scheduler.
            app_ids: the applications.
            dryrun: yield the candidates, and remove nothing.

        Raises:
            StateError: something cannot be removed.
        """
        engine = self.scheduler(scheduler)
        if isinstance(engine, Prunes):
            prune = engine.prune
        else:
            prune = _deleting(engine)
        for pruned in prune(app_ids, dryrun=dryrun):
            if pruned.app_id and not dryrun:
                handle = make_app_handle(scheduler, self._name, pruned.app_id)
                notifications.forget(self, handle)
                provenance.forget(self, handle)
                hidden.forget(scheduler, pruned.app_id)
            yield pruned

    def cfg_from_str(self, scheduler: str, *cfg_literal: str) -> OptionValues:
        """Parses run options such as ``a=1,b=x;y``; the last value of a repeated option counts.

        Raises:
            InvalidRunConfigException: an option is unknown or of the wrong type.
        """
        opts = self.scheduler_run_opts(scheduler)
        cfg: OptionValues = {}
        for text in cfg_literal:
            cfg.update(opts.cfg_from_str(text, strict=True))
        return cfg

    def cfg_from_json_repr(self, scheduler: str, json_repr: str) -> OptionValues:
        """Parses run options from a JSON object.

        Raises:
            InvalidRunConfigException: an option is unknown or of the wrong type.
        """
        return self.scheduler_run_opts(scheduler).cfg_from_json_repr(json_repr, strict=True)

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
        if dryrun:
            return info
        return self._schedule_recorded(info)

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
        specs_checks.check_kinds(app)
        if workspace is None:
            masked = None
        else:
            masked = without_password(str(workspace))
        with self._event("dryrun", scheduler, app=app, cfg=cfg, workspace=masked):
            engine = self.scheduler(scheduler)
            ready = runner_prepare.prepare(app, scheduler, self._name, parent_run_id, self.load_config)
            before = workspace_options.hold.set(self.holds_workspaces)
            try:
                info = engine.submit_dryrun(ready, cfg or {}, workspace)
            finally:
                workspace_options.hold.reset(before)
            info.scheduler = scheduler
            info.notes += specs_checks.notes(ready)
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

    def results(self, app_handle: str, metrics: Words | None = None) -> Results:
        """Returns the results of the runs of a sweep: parameters, state, time, measurements and metrics.

        Args:
            app_handle: the sweep; another application counts as one run.
            metrics: the metrics to read from the logs, as of ``torchx results --metric`` (default: loss, acc
                and the like); those of the configured trackers are always included.

        Raises:
            UnknownAppException: the application does not exist.
            UsageError: a metric is invalid.
        """
        described = self.description(app_handle)
        if described is None:
            raise UnknownAppException(app_handle)
        sweep = runner_sweeps.sweep_of(self, app_handle, described)
        chosen = [sweep_results.parse_metric(text, "metrics") for text in metrics or ()]
        found = runner_sweeps.results_of(self, sweep, chosen, usual=metrics is None)
        return sweep_results.Results(found)

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
        watches = any(map(dryrun_info.cfg.get, ("stall", "straggler")))
        if engine.sends_notifications:
            plan = None
        else:
            plan = dryrun_info.notify
        if plan is not None:
            notifications.check(plan, scheduler, stalls=watches)
        if dryrun_info.app is not None:
            runner_prepare.require_scripts(dryrun_info.app, engine)
        with self._event("schedule", scheduler, app=dryrun_info.app, cfg=dryrun_info.cfg) as call:
            call.event.app_id = app_id = engine.schedule(dryrun_info)
        handle = make_app_handle(scheduler, self._name, app_id)
        if dryrun_info.app is not None:
            self._apps[handle] = dryrun_info.app
        resolve.remember_last(handle)
        if isinstance(engine, Shared):
            origins.remember(handle)
        if dryrun_info.app is not None:
            with as_note(dryrun_info.notes, "its secrets are not masked in quoted output"):
                hidden.keep(scheduler, app_id, [dryrun_info.app])
        lost = "torchx wait starts its retries"
        if plan is not None:
            lost = "no notifications are sent"
        with as_note(dryrun_info.notes, lost):
            watched = isinstance(engine, NeedsWatcher) and engine.needs_watcher(dryrun_info)
            if plan is not None or watched:
                notifications.request(self, handle, plan, stalls=watches)
        return handle

    def build_workspace(
        self,
        app: AppDef,
        scheduler: str,
        cfg: RunOptions | None = None,
        workspace: str | Workspace | None = None,
    ) -> AppDef:
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
        specs_checks.check_kinds(app)
        ready = specs_app.AppDef(
            app.name, [specs_app.resolve_overrides(role) for role in app.roles], dict(app.metadata)
        )
        info = self.dryrun(ready, scheduler, cfg, workspace)
        assert info.app is not None
        engine = self.scheduler(scheduler)
        if isinstance(engine, BuildsImages):
            engine.build_planned_images(info)
        for role, done in zip(ready.roles, info.app.roles, strict=True):
            still = {}
            if done.workspace:
                still = done.workspace.projects
            role.image, role.workspace = done.image, specs_workspace.Workspace(dict(still)) if still else None
        return ready

    def resolve_handle(
        self, text: str, prefer: Collection[str] = (), patience: float | None = None, *, acts: bool = False
    ) -> str:
        """Returns the handle of a short name, see :func:`torchx.runner.resolve.resolve`.

        Args:
            text: the short name.
            prefer: if several applications match, consider only those in these states or of these
                schedulers.
            patience: maximum seconds of a query of several schedulers (default: a few).
            acts: the application is to be changed: a name matches those of this state home only.
        """
        return resolve.resolve(self, text, prefer, patience, acts=acts)

    def description(
        self, app_handle: str, *, brief: bool = False, replicas: bool = True
    ) -> DescribeAppResponse | None:
        """Returns the scheduler's description of an application, None if it is unknown.

        Reconciles the application first if its scheduler requires that.

        Args:
            app_handle: the application.
            brief: only the status is needed; roles and metadata may be omitted.
            replicas: the status of the replicas is needed; otherwise it may be omitted from a brief one.
        """
        scheduler, app_id = self._of(app_handle)
        query = scheduler.describe
        if brief and not replicas and isinstance(scheduler, Summarizes):
            query = scheduler.summary
        elif brief and isinstance(scheduler, Glances):
            query = scheduler.glance
        # a brief query is not an event
        with nullcontext() if brief else self._event("describe", scheduler.backend, app_id):
            described = query(app_id)
            if described is not None and described.needs_reconcile:
                scheduler.reconcile(app_id)
                with sharing(time.monotonic()):  # no earlier answer
                    described = query(app_id)
            return described

    def poll(self, app_handle: str) -> DescribeAppResponse | None:
        """Returns the brief description of an application, None if it is unknown, for a part that waits.

        The parts of a process share the answers of an engine that is reached over a network, if it supports
        that: they may be as old as the pauses of :meth:`pause_after`.
        """
        with sharing():
            return self.description(app_handle, brief=True)

    def outline(self, app_handle: str) -> DescribeAppResponse | None:
        """Returns the application id, the roles and the replicas of an application, None if it is unknown.

        The status may be omitted: with thousands of replicas, reading it takes seconds on some schedulers.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, Outlines):
            return scheduler.outline(app_id)
        return self.description(app_handle, brief=True)

    def status(self, app_handle: str) -> AppStatus | None:
        """Returns the status of an application, None if it is unknown."""
        described = self.description(app_handle, brief=True)
        if described is None:
            return None
        return status_of(described)

    def usage(self, app_handle: str) -> AppUsage | None:
        """Returns the measurements of an application, None if there are none.

        Raises:
            StateError: the engine cannot be queried.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, Measures):
            return scheduler.usage(app_id)
        return None

    def stacks(
        self,
        app_handle: str,
        replicas: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        native: bool = False,
    ) -> AppStacks:
        """Returns the stacks of the processes of a running application.

        Args:
            app_handle: the application.
            replicas: only these replicas (``role/id``) and roles (default: all).
            ranks: only the processes of these ranks (default: all).
            native: include frames of compiled code; pauses each process while it is read.

        Raises:
            UnknownAppException: the scheduler does not know the application.
            StateError: it is not running, or its processes cannot be read.
            UsageError: the scheduler cannot run programs in replicas.
        """
        scheduler, app_id = self._of(app_handle)
        described = self._require(app_handle)
        with self._event("stacks", scheduler.backend, app_id):
            return runner_stacks.take(scheduler, described, replicas, ranks, native)

    def wait(
        self, app_handle: str, wait_interval: float | str = LONGEST, timeout: float | str | None = None
    ) -> AppStatus | None:
        """Blocks until an application has ended.

        Args:
            app_handle: the application.
            wait_interval: maximum time between two polls, for schedulers without wake-up: seconds, or a text
                such as ``10m``.
            timeout: maximum time to wait, in the same form; None for no limit.

        Returns:
            Its status at the end or after the timeout; None if it is unknown.

        Raises:
            UsageError: a time is invalid.
        """
        scheduler, app_id = self._of(app_handle)
        longest = stalls.seconds("wait_interval", wait_interval)
        interval = min(_FIRST_LOOK, longest)
        if timeout is not None:
            timeout = stalls.seconds("timeout", timeout)
        end = deadline(timeout)
        with self._event("wait", scheduler.backend, app_id):
            while True:
                with sharing(time.monotonic()):  # with other threads that wait
                    status = self.status(app_handle)
                left = seconds_left(end)
                if status is None or status.is_terminal() or left == 0:
                    break
                if not isinstance(scheduler, Waits):
                    scheduler.reconcile(app_id)
                elif not scheduler.wait(app_id, left):
                    continue
                else:  # it has ended, or was started again meanwhile
                    with sharing():  # its answer
                        status = self.status(app_handle)
                    if status is None or status.is_terminal():
                        break
                time.sleep(interval if left is None else min(interval, left))
                interval = min(interval * 1.5, longest)
        if status is not None and status.state.name == "FAILED" and not scheduler.on_this_machine:
            with suppress(ModuleNotFoundError):
                import_module("torchx.features.bad_nodes.evidence").record(self, app_handle, status)
        return status

    def events(
        self,
        app_handle: str | None = None,
        follow: bool = False,
        *,
        scheduler: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        tail: int | None = None,
    ) -> Iterator[AppEvent]:
        """Yields the events of an application in order, or those of all applications, merged by time.

        Args:
            app_handle: the application (default: all of the caller's).
            follow: continue with new events until the application has ended; without an application, also
                with new applications, until the iterator is closed.
            scheduler: without an application: only those of this scheduler (default: those whose listing is
                cheap, such as the local ones).
            since, until: only events of this time.
            tail: only the last N recorded events, and those that follow.

        Raises:
            UnknownAppException: the scheduler does not know the application.
        """
        query = reports.EventQuery(follow, since, until, tail)
        if app_handle is not None:
            self._require(app_handle)
            return reports.of_application(self, app_handle, query)
        return reports.of_schedulers(self, [scheduler] if scheduler else self.cheap_schedulers(), query)

    def notifications(self, app_handle: str) -> Deliveries:
        """Returns the state of each notification about an application, without secrets."""
        try:
            if not self._notifications_folder(app_handle).exists():
                return []
        except StateError:  # without a state home there are no notifications
            return []
        status = self.status(app_handle)
        if status is None:
            return []
        return notifications.left(self, app_handle, status.state)

    def provenance(self, app_handle: str) -> Provenance | None:
        """Returns the source, the Python and the machine that an application was submitted from.

        If this machine cannot read them, only the commit and the branch are known. Returns None if
        nothing was recorded.

        Raises:
            StateError: the record cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        found = None
        if folder is not None:
            found = store.Store(folder).read()
        return found or provenance.from_metadata(self.description(app_handle))

    def source_diff(self, app_handle: str) -> bytes | None:
        """Returns the diff of the tracked files against the commit of :meth:`provenance`, None without one.

        Raises:
            StateError: it cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        if folder is None:
            return None
        return store.Store(folder).diff()

    def source_file(self, app_handle: str, file: File) -> bytes:
        """Returns the recorded content of a changed or untracked file of :meth:`provenance`.

        Raises:
            StateError: it was not kept, or cannot be read.
        """
        folder = self._provenance_folder(app_handle)
        if folder is None:
            raise UnknownAppException(app_handle)
        return store.Store(folder).content(file)

    def wakes(self, app_handle: str) -> bool:
        """Returns True if :meth:`wait` is woken at the end of an application, False if it polls."""
        scheduler, app_id = self._of(app_handle)
        return isinstance(scheduler, Waits) and scheduler.wakes(app_id)

    def pause_after(self, app_handle: str, waited: float) -> float:
        """Returns the seconds until the next query of an application; see :mod:`torchx.scheduling.pace`."""
        scheduler, app_id = self._of(app_handle)
        return pause_after(waited, nearby=scheduler.is_nearby(app_id))

    def pause(self, app_handle: str, seconds: float) -> None:
        """Sleeps, until the end of an application at most, if its scheduler sees that without polling."""
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, Waits) and scheduler.wakes(app_id):
            scheduler.wait(app_id, seconds)
        else:
            time.sleep(seconds)

    def cancel(self, app_handle: str) -> None:
        """Cancels an application; does nothing if it has ended or is unknown."""
        scheduler, app_id = self._of(app_handle)
        with self._event("cancel", scheduler.backend, app_id):
            scheduler.cancel(app_id)

    def kill(self, app_handle: str) -> None:
        """Kills an application without a grace period, if the scheduler can."""
        scheduler, app_id = self._of(app_handle)
        with self._event("kill", scheduler.backend, app_id):
            scheduler.kill(app_id) if isinstance(scheduler, Kills) else scheduler.cancel(app_id)

    def stop(self, app_handle: str) -> None:
        """The older name of :meth:`cancel`."""
        warnings.warn("Runner.stop is now Runner.cancel", DeprecationWarning, stacklevel=2)
        self.cancel(app_handle)

    def delete(self, app_handle: str) -> None:
        """Removes an application with its record and logs; cancels it first."""
        scheduler, app_id = self._of(app_handle)
        recorder, recorded = self._recorder_of(app_handle)
        with self._event("delete", scheduler.backend, app_id):
            recorder.delete(recorded)  # of a delayed application, its sweep and itself
        self._apps.pop(app_handle, None)
        self._targets.pop(app_handle, None)
        notifications.forget(self, app_handle)
        provenance.forget(self, app_handle)
        hidden.forget(scheduler.backend, app_id)

    def describe(self, app_handle: str) -> AppDef | None:
        """Returns an application as this runner has submitted it, or as recorded by its scheduler.

        None if it is unknown.
        """
        if (known := self._apps.get(app_handle)) is not None:
            return copy.deepcopy(known)
        found = self.description(app_handle)
        if found is None:
            return None
        return found.app()

    def list(self, scheduler: str, cfg: RunOptions | None = None) -> AppList:
        """Returns the applications that a scheduler knows, newest first.

        Args:
            scheduler: the scheduler.
            cfg: its run options, if it needs some to connect.
        """
        with self._event("list", scheduler):
            return AppList(self.select(scheduler, app_query.AppQuery(), cfg))

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
            should_tail: follow until the application has ended.
            streams: the output stream (default: the scheduler's choice).

        Raises:
            UnknownAppException: the scheduler does not know the application.
            StateError: it has no such role, or no such replica.
            UsageError: ``regex`` is invalid.
            NotImplementedError: the scheduler has no logs, or none of this stream.
        """
        scheduler, app_id = self._of(app_handle)
        described = self._require(app_handle)
        if described.roles_statuses:  # else not known yet
            checks.require_replicas(
                described.app_id, checks.replicas_in(described.roles_statuses), role_name, [k]
            )
        if regex is not None:
            logs.check_regex(regex)
        with self._event("log_lines", scheduler.backend, app_id):
            return scheduler.log_iter(app_id, role_name, k, regex, since, until, should_tail, streams)

    def log_chunks(self, app_handle: str, query: LogQuery) -> Iterator[LogChunk]:
        """Returns the log lines of several replicas as one stream, ordered by time if known.

        Raises:
            UnknownAppException: the scheduler does not know it.
        """
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, LogChunks):
            return scheduler.log_chunks(app_id, query)
        described = scheduler.describe(app_id)
        if described is None:
            raise UnknownAppException(app_handle)
        return logs.merged(scheduler, app_id, described.roles, query)

    def _require(self, app_handle: str) -> DescribeAppResponse:
        described = self.description(app_handle, brief=True)
        if described is None:
            raise UnknownAppException(app_handle)
        return described

    def _known(self) -> Mapping[str, SchedulerFactory]:
        if self._factories is None:
            self._factories = torchx_schedulers.get_scheduler_factories()
        return self._factories

    def _make(self, name: str) -> AnyScheduler:
        if name == SWEEPS and name not in (self._factories or ()):
            return self._sweeps()
        if self._factories is None:
            return torchx_schedulers.create_scheduler(name, self._name, **self._scheduler_params)
        if name not in self._factories:
            raise UnknownSchedulerException(name, self._factories)
        return self._factories[name](self._name, **self._scheduler_params)

    def _event(
        self,
        api: str,
        scheduler: str,
        app_id: str | None = None,
        *,
        app: AppDef | None = None,
        cfg: RunOptions | None = None,
        workspace: str | None = None,
    ) -> log_event:
        """Returns a context manager that records a call."""
        return events.log_event(
            api,
            scheduler,
            app_id,
            app_image=app.roles[0].image if app is not None and app.roles else None,
            app_metadata=app.metadata if app is not None else None,
            runcfg=events.shown(cfg) if cfg is not None and events.heard() else None,
            workspace=workspace,
            session=self._name,
        )

    def _sweeps(self) -> sweep_scheduler.SweepScheduler:
        return sweep_scheduler.SweepScheduler(self._name, self.scheduler)

    def _find_delayed(self, app_handle: str) -> Delayed | None:
        """Returns an application that was submitted to wait for others; None for any other one."""
        if self._found(app_handle) is not None or not sweep_paths.is_delayed(parse_app_handle(app_handle)[2]):
            return None
        return delayed.find(app_handle, self.scheduler)

    def _of(self, app_handle: str) -> tuple[AnyScheduler, str]:
        """Returns the scheduler that has an application, and its id there; masks its secrets from now on."""
        target = self._found(app_handle)
        if target is not None:
            return target
        backend, _, app_id = parse_app_handle(app_handle)
        hidden.register(backend, app_id)
        waiting = None
        if sweep_paths.is_delayed(app_id):
            waiting = delayed.find(app_handle, self.scheduler)
        if waiting is not None:
            hidden.register(SWEEPS, waiting.sweep.header.sweep)
            return delayed_scheduler.scheduler_of(waiting, self.scheduler)
        target = self.scheduler(backend), app_id
        if len(self._targets) > _MOST_FOUND:
            self._targets.clear()
        self._targets[app_handle] = (time.monotonic() + _FOUND_FOR, target)
        return target

    def _found(self, app_handle: str) -> tuple[AnyScheduler, str] | None:
        """Returns the result of :meth:`_of` for a handle that it got a few seconds ago."""
        until, target = self._targets.get(app_handle, (0.0, None))
        if time.monotonic() < until:
            return target
        return None

    def _notifications_folder(self, app_handle: str) -> Path:
        """Returns the folder of an application's notifications, which may not exist."""
        scheduler, app_id = self._recorder_of(app_handle)
        home = paths.Home(paths.user_home())
        if scheduler.sends_notifications:
            return home.job(app_id).notifications
        return home.notifications / paths.place(scheduler.backend, app_id)

    def _sends_notifications(self, app_handle: str) -> bool:
        """Returns True if the scheduler of an application sends its notifications; else the runner does."""
        return self._recorder_of(app_handle)[0].sends_notifications

    def _recorder_of(self, app_handle: str) -> tuple[AnyScheduler, str]:
        """Returns the scheduler with the records of a submission: for a delayed application, its sweep."""
        waiting = self._find_delayed(app_handle)
        if waiting is not None:
            return self._sweeps(), waiting.sweep.header.sweep
        return self._of(app_handle)

    def _provenance_folder(self, app_handle: str) -> Path | None:
        """Returns the folder of an application's provenance, which may not exist; None if it is unknown."""
        scheduler, app_id = self._recorder_of(app_handle)
        if isinstance(scheduler, KeepsProvenance):
            return scheduler.provenance_folder(app_id)
        return paths.Home(paths.user_home()).provenance / paths.place(scheduler.backend, app_id)


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


def _deleting(engine: AnyScheduler) -> Callable[..., Iterator[Pruned]]:
    """Returns the substitute for the ability `Prunes`."""

    def prune(app_ids: Iterable[str], *, dryrun: bool) -> Iterator[Pruned]:
        for app_id in app_ids:
            if not dryrun:
                engine.delete(app_id)
            yield app_query.Pruned(make_app_handle(engine.backend, engine.session_name, app_id), 0, app_id)

    return prune


def _not_supported(scheduler: str, ability: str) -> UsageError:
    return UsageError(f"{scheduler} cannot {ability}", code="not_supported", facts={"scheduler": scheduler})
