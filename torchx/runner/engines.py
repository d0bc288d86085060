"""The schedulers that a runner speaks to: made when they are first asked for, and closed together."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx.scheduler import Diagnoses, Executes, ListAppResponse, Prunes, Scheduler, Selects
from torchx.specs.handles import UnknownSchedulerException, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from torchx.diagnosis import Finding
    from torchx.execution import Streams
    from torchx.runner.events import log_event
    from torchx.schedulers import SchedulerFactory
    from torchx.selection import AppQuery, Pruned
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import CfgVal, runopts


class Engines:
    """The schedulers of a runner, and their run options.

    Args:
        name: the session part of the handles they make.
        scheduler_factories: the schedulers by name; all that are installed unless given.
        scheduler_params: keyword arguments for the factories.
    """

    def __init__(
        self,
        name: str,
        scheduler_factories: Mapping[str, SchedulerFactory] | None,
        scheduler_params: Mapping[str, object] | None,
    ) -> None:
        from torchx.schedulers import get_default_scheduler_name

        self._name = name
        self._factories = scheduler_factories
        self._scheduler_params = dict(scheduler_params or {})
        self._schedulers: dict[str, Scheduler[Any]] = {}
        self._making = threading.Lock()
        self.default_scheduler = get_default_scheduler_name()

    def close(self) -> None:
        """Closes the schedulers; running applications are not touched."""
        with self._making:
            schedulers, self._schedulers = list(self._schedulers.values()), {}
        for scheduler in schedulers:
            scheduler.close()

    def scheduler_backends(self) -> list[str]:
        """Returns the names of the schedulers."""
        return list(self._known())

    def scheduler_run_opts(self, scheduler: str) -> runopts:
        """Returns the run options that a scheduler takes.

        Raises:
            UnknownSchedulerException: there is no such scheduler.
        """
        return self._scheduler(scheduler).run_opts()

    def takes_workspace(self, scheduler: str, *, asked: bool = True) -> bool:
        """Tells whether a scheduler lays workspaces over images.

        Args:
            scheduler: which scheduler.
            asked: someone asks for this one; else the configuration of a project has one for all runs.

        Raises:
            UnknownSchedulerException: there is no such scheduler.
        """
        return self._scheduler(scheduler).takes_workspaces(asked=asked)

    def exists(self, app_handle: str) -> bool:
        """Tells whether the scheduler knows an application."""
        scheduler, app_id = self._of(app_handle)
        return scheduler.exists(app_id)

    def describe_native(self, app_handle: str) -> Any:
        """Returns the scheduler's own object for an application, None when it has none."""
        scheduler, app_id = self._of(app_handle)
        with self._event("describe_native", scheduler.backend, app_id):
            return scheduler.describe_native(app_id)

    def execute(
        self, app_handle: str, role_name: str, k: int, command: Sequence[str], streams: Streams
    ) -> int:
        """Runs a program in a replica, beside what runs there, and returns its exit code.

        Args:
            app_handle: the application.
            role_name: name of the role.
            k: id of the replica within the role.
            command: the program and its arguments; no shell.
            streams: what it reads and prints to.

        Raises:
            UsageError: the scheduler cannot run programs in replicas.
            StateError: the replica does not run, or has no such program.
        """
        scheduler, app_id = self._of(app_handle)
        if not isinstance(scheduler, Executes):
            from torchx.errors import UsageError

            raise UsageError(f"{scheduler.backend} runs no further programs in its replicas")
        return scheduler.execute(app_id, role_name, k, command, streams)

    def select(
        self, scheduler: str, query: AppQuery, cfg: Mapping[str, CfgVal] | None = None
    ) -> Iterator[ListAppResponse]:
        """Yields the wanted applications of a scheduler, newest first, each as it is asked for.

        Args:
            scheduler: which scheduler.
            query: which applications.
            cfg: the scheduler's run options, where it needs some to be reached.
        """
        engine = self._scheduler(scheduler)
        resolved = engine.run_opts().resolve(cfg) if cfg else None
        if isinstance(engine, Selects):
            found: Iterable[ListAppResponse] = engine.select(query)
        else:
            listed = engine.list(resolved)
            found = (
                app for app in listed if query.takes(app.app_id, app.name, app.state.name, app.submitted_at)
            )
        for app in found:
            if app.app_handle == ListAppResponse.app_handle:
                app.app_handle = make_app_handle(scheduler, self._name, app.app_id)
            yield app

    def has(self, scheduler: str, ability: type) -> bool:
        """Tells whether a scheduler has one of the optional abilities, such as ``Prunes``."""
        return isinstance(self._scheduler(scheduler), ability)

    def diagnose(self, scheduler: str) -> Iterable[Finding]:
        """Returns what a look at the engine of a scheduler finds.

        Raises:
            TorchxError: the scheduler cannot say more than that it cannot be asked.
        """
        engine = self._scheduler(scheduler)
        if isinstance(engine, Diagnoses):
            return engine.diagnose()
        from torchx.diagnosis import Finding, Verdict

        next(iter(engine.list()), None)
        return [Finding("engine", Verdict.GOOD, "it answers")]

    def prune(self, scheduler: str, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
        """Removes ended applications of a scheduler, and leftovers where it knows of some.

        Args:
            scheduler: which scheduler.
            app_ids: the applications.
            dryrun: yield what would be removed, and remove nothing.

        Raises:
            StateError: something cannot be removed.
        """
        engine = self._scheduler(scheduler)
        if isinstance(engine, Prunes):
            yield from engine.prune(app_ids, dryrun=dryrun)
            return
        from torchx.selection import Pruned

        for app_id in app_ids:
            if not dryrun:
                engine.delete(app_id)
            yield Pruned(make_app_handle(scheduler, self._name, app_id), 0, app_id)

    def cfg_from_str(self, scheduler: str, *cfg_literal: str) -> dict[str, CfgVal]:
        """Reads run options such as ``a=1,b=x;y``; of an option in several texts the last counts.

        Raises:
            InvalidRunConfigException: an option is unknown or of the wrong type.
        """
        opts = self.scheduler_run_opts(scheduler)
        cfg: dict[str, CfgVal] = {}
        for text in cfg_literal:
            cfg.update(opts.cfg_from_str(text, strict=True))
        return cfg

    def cfg_from_json_repr(self, scheduler: str, json_repr: str) -> dict[str, CfgVal]:
        """Reads run options from a JSON object.

        Raises:
            InvalidRunConfigException: an option is unknown or of the wrong type.
        """
        return self.scheduler_run_opts(scheduler).cfg_from_json_repr(json_repr, strict=True)

    def _known(self) -> Mapping[str, SchedulerFactory]:
        if self._factories is None:
            from torchx.schedulers import get_scheduler_factories

            self._factories = get_scheduler_factories()
        return self._factories

    def _scheduler(self, name: str) -> Scheduler[Any]:
        made = self._schedulers.get(name)
        if made is None:
            with self._making:  # of two threads that need it at once, one makes it for both
                made = self._schedulers.get(name)
                if made is None:
                    made = self._schedulers[name] = self._make(name)
        return made

    def _make(self, name: str) -> Scheduler[Any]:
        if self._factories is None:
            from torchx.schedulers import create_scheduler

            return create_scheduler(name, self._name, **self._scheduler_params)
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
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: str | None = None,
    ) -> log_event:
        """Returns what records a call, to be put round it in a ``with`` statement."""
        from torchx.runner.events import heard, log_event, shown  # on demand: a look is no event

        return log_event(
            api,
            scheduler,
            app_id,
            app_image=app.roles[0].image if app is not None and app.roles else None,
            app_metadata=app.metadata if app is not None else None,
            runcfg=shown(cfg) if cfg is not None and heard() else None,
            workspace=workspace,
            session=self._name,
        )

    def _of(self, app_handle: str) -> tuple[Scheduler[Any], str]:
        backend, _, app_id = parse_app_handle(app_handle)
        return self._scheduler(backend), app_id
