"""The schedulers of a runner: created on first use, closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.base import (
    AnyScheduler,
    Diagnoses,
    Executes,
    ForwardsPorts,
    KeepsProvenance,
    ListAppResponse,
    Prunes,
    Selects,
)
from torchx.scheduling.query import AppQuery, Pruned
from torchx.specs.handles import UnknownSchedulerException, make_app_handle, parse_app_handle
from torchx.sweeps import BACKEND as SWEEPS

with lazy_imports:
    from torchx import config
    from torchx import schedulers as torchx_schedulers
    from torchx.jobs import paths
    from torchx.runner import events, notifications, provenance, survey
    from torchx.scheduling import findings
    from torchx.sweeps import paths as sweep_paths
    from torchx.sweeps import scheduler as sweep_scheduler

if TYPE_CHECKING:
    from pathlib import Path
    from socket import socket

    from torchx.config import Config
    from torchx.schedulers import SchedulerFactory
    from torchx.scheduling.streams import Streams
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import OptionValues, RunOptions, runopts


LONGEST_NAME = 200
"""Maximum characters of an id in the name of a folder; the end of an id is kept, since it is unique."""


def _deleting(engine: AnyScheduler) -> Callable[..., Iterator[Pruned]]:
    """Returns the substitute for the ability `Prunes`."""

    def prune(app_ids: Iterable[str], *, dryrun: bool) -> Iterator[Pruned]:
        for app_id in app_ids:
            if not dryrun:
                engine.delete(app_id)
            yield Pruned(make_app_handle(engine.backend, engine.session_name, app_id), 0, app_id)

    return prune


def _place(scheduler: AnyScheduler, app_id: str) -> str:
    """Returns the path of an application's files in a folder of the state home."""
    return f"{paths.file_name(scheduler.backend)}/{paths.file_name(app_id)[-LONGEST_NAME:]}"


def _load_config() -> Config:
    return config.load_config()


class Engines:
    """The schedulers of a runner, and their run options.

    Args:
        name: the session part of the handles they make.
        scheduler_factories: the schedulers by name (default: all installed ones).
        scheduler_params: keyword arguments for the factories.

    Attributes:
        load_config: returns the configuration; the command line sets it, to read the files only once.
    """

    def __init__(
        self,
        name: str,
        scheduler_factories: Mapping[str, SchedulerFactory] | None,
        scheduler_params: Mapping[str, object] | None,
    ) -> None:
        self._name = name
        self._factories = scheduler_factories
        self._scheduler_params = dict(scheduler_params or {})
        self._schedulers: dict[str, AnyScheduler] = {}
        self._making = threading.Lock()
        # submitted by this runner; derived runners of other packages fill it
        self._apps: dict[str, AppDef] = {}
        self.default_scheduler = torchx_schedulers.get_default_scheduler_name()
        self.load_config: Callable[[], Config] = _load_config

    def close(self) -> None:
        """Closes the schedulers; does not affect running applications."""
        with self._making:
            schedulers, self._schedulers = list(self._schedulers.values()), {}
        for scheduler in schedulers:
            scheduler.close()

    def scheduler_backends(self) -> list[str]:
        """Returns the names of the schedulers."""
        return list(self._known())

    def listed_backends(self) -> list[str]:
        """Returns the names of the schedulers that may have applications; of sweeps, if any exist."""
        sweeps = [SWEEPS] if sweep_paths.known() else []
        return list(dict.fromkeys([*self.scheduler_backends(), *sweeps]))

    def cheap_schedulers(self) -> list[str]:
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
        resolved = engine.run_opts().resolve(cfg) if cfg else None
        if isinstance(engine, Selects):
            found: Iterable[ListAppResponse] = engine.select(query)
        else:
            found = (each for each in engine.list(resolved) if each.matches(query))
        sweeps = frozenset(sweep_paths.known())
        for app in found:
            if sweep_paths.sweep_of_run(app.run or app.app_id)[0] in sweeps and app.app_id != query.called:
                continue  # one row for all of its runs
            if app.needs_reconcile:
                with suppress(TorchxError):  # must not hide the others
                    engine.reconcile(app.app_id)
                    if engine.has_runs and isinstance(engine, Selects):
                        app = next(engine.select(AppQuery(called=app.app_id)), app)
            if app.app_handle == ListAppResponse.app_handle:
                app.app_handle = make_app_handle(scheduler, self._name, app.app_id)
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
        prune = engine.prune if isinstance(engine, Prunes) else _deleting(engine)
        for pruned in prune(app_ids, dryrun=dryrun):
            if pruned.app_id and not dryrun:
                handle = make_app_handle(scheduler, self._name, pruned.app_id)
                notifications.forget(self, handle)
                provenance.forget(self, handle)
            yield pruned

    def _notifications_folder(self, app_handle: str) -> Path:
        """Returns the folder of an application's notifications, which may not exist."""
        scheduler, app_id = self._of(app_handle)
        home = paths.Home(paths.user_home())
        if scheduler.sends_notifications:
            return home.job(app_id).notifications
        return home.notifications / _place(scheduler, app_id)

    def _provenance_folder(self, app_handle: str) -> Path | None:
        """Returns the folder of an application's provenance, which may not exist; None if it is unknown."""
        scheduler, app_id = self._of(app_handle)
        if isinstance(scheduler, KeepsProvenance):
            return scheduler.provenance_folder(app_id)
        return paths.Home(paths.user_home()).provenance / _place(scheduler, app_id)

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

    def _known(self) -> Mapping[str, SchedulerFactory]:
        if self._factories is None:
            self._factories = torchx_schedulers.get_scheduler_factories()
        return self._factories

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

    def _make(self, name: str) -> AnyScheduler:
        if name == SWEEPS and name not in (self._factories or ()):
            return sweep_scheduler.SweepScheduler(self._name, self.scheduler)
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
    ) -> events.log_event:
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

    def _of(self, app_handle: str) -> tuple[AnyScheduler, str]:
        backend, _, app_id = parse_app_handle(app_handle)
        return self.scheduler(backend), app_id


def _not_supported(scheduler: str, ability: str) -> UsageError:
    return UsageError(f"{scheduler} cannot {ability}", code="not_supported", facts={"scheduler": scheduler})
