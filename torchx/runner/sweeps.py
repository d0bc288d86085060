"""Sweeps of a runner: the applications of all runs are made and checked before any is submitted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torchx.discovery.call.arguments import parse_arguments
from torchx.discovery.call.build import build_app
from torchx.discovery.call.command_line import parse_command_line
from torchx.discovery.find.finder import find_component
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.runner import prepare as runner_prepare
from torchx.runner import resolve
from torchx.schedulers import create_scheduler
from torchx.scheduling.base import AnyScheduler, BuildsImages
from torchx.specs.app import AppDef, lay_over
from torchx.specs.handles import make_app_handle, parse_app_handle
from torchx.sweeps.parameters import Row, filled, of_data
from torchx.sweeps.paths import BACKEND
from torchx.sweeps.submission import Request, Submitted, submit

with lazy_imports:
    from torchx.sweeps import results, view
    from torchx.tracker import configured as tracker_configured

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.discovery.model import Component
    from torchx.json_limits import Data
    from torchx.runner.host import Host
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.run_options import RunOptions
    from torchx.specs.workspace import Workspace
    from torchx.sweeps.results import Metric, Result
    from torchx.sweeps.view import Sweep
    from torchx.tracker.base import TrackerBase

ORIGIN = "--each"
"""The name of the parameters in errors."""


def applications(
    name: str,
    rows: Sequence[Row],
    argv: Sequence[str] = (),
    *,
    named: Data | None = None,
    section: Data | None = None,
    finish: Callable[[AppDef], AppDef] = lambda app: app,
) -> list[tuple[Row, AppDef]]:
    """Returns the application of each run.

    A parameter whose name is in braces in an argument, as in ``{lr}``, replaces it there; others are
    arguments of the component. ``{run}`` is left for the number of the run, see :func:`Plan.app`.

    Args:
        name: the component.
        rows: the parameters of each run.
        argv: the other arguments, as on a command line.
        named: the other arguments, by name.
        section: defaults from the configuration, by name.
        finish: changes each application.

    Raises:
        UsageError: the component does not exist, a parameter is unknown or also given as an argument, or the
            arguments of a run are invalid.
    """
    component = find_component(name)
    _check_overlap(component, filled(argv, rows[0])[1], argv, named)
    built = []
    for row in rows:
        texts, own = filled(argv, row)
        try:
            arguments = parse_arguments(
                component,
                texts,
                config={**(named or {}), **own},
                section=section,
                config_origin=ORIGIN,
            )
        except UsageError as error:
            key = error.facts.get("flag")
            if error.code == "unknown_flag" and key in own and component.varargs:
                use = f"for the program: use {{{key}}} in the arguments, e.g. --{key}={{{key}}}"
                error.hint = f"{use}   {error.hint}"
            if error.code != "unknown_flag" and len(row) > 1:
                shown = ", ".join(f"{name}={value}" for name, value in row.items())
                error.message += f"; in the run {shown}"
            raise
        built.append((row, finish(build_app(component, arguments))))
    return built


def _check_overlap(
    component: Component, names: Iterable[str], argv: Sequence[str], named: Data | None
) -> None:
    given = {*(named or {})}
    with suppress(UsageError):  # reported with the arguments of the first run
        given |= {*parse_command_line(component, argv).values()}
    for name in names:
        if name.replace("-", "_") in given or name in given:
            raise UsageError(
                f"`{name}` is given twice: by --each and as an argument",
                hint=f"remove --{name} from the arguments or from --each",
                code="conflicting_flags",
            )


def submit_sweep(
    engine: AnyScheduler,
    runs: Sequence[tuple[Row, AppDef]],
    *,
    session: str,
    cfg: RunOptions,
    workspace: str | Workspace | None = None,
    parent_run_id: str | None = None,
    load_config: Callable[[], Config],
    component: str = "",
    identity: Any = None,
    at_once: int | None = None,
    after: Sequence[Sequence[str]] = (),
    fresh: bool = False,
    delayed: bool = False,
) -> tuple[Submitted, list[str]]:
    """Submits a sweep; returns the result, and notes of the scheduler about its runs.

    Args:
        engine: the scheduler of the runs.
        runs: the parameters and the application of each run.
        session: the session part of handles.
        cfg: the run options.
        workspace: folders to send with each run.
        parent_run_id: the parent run.
        load_config: returns the configuration.
        component: the name of the component.
        identity: what two submissions of the same sweep have in common.
        at_once: maximum number of runs at the same time; 0 for no limit (default: 1 on schedulers of this
            machine, else no limit).
        after: the applications to wait for, each with a condition.
        fresh: make a new sweep even if this one exists.
        delayed: it is a single application that waits for others.

    Raises:
        UsageError: the scheduler cannot run the applications.
        StateError: an image cannot be built, or the sweep cannot be recorded.
    """
    config = load_config()
    ready = []
    for row, app in runs:
        prepared = runner_prepare.prepare(app, engine.backend, session, parent_run_id, lambda: config)
        if workspace:
            lay_over(workspace, prepared.roles)
        ready.append((row, prepared))
    for _, app in () if after else ready:  # another application may write it
        runner_prepare.require_scripts(app, engine)
    info = engine.submit_dryrun(ready[0][1], cfg)
    if isinstance(engine, BuildsImages) and any(role.workspace for role in ready[0][1].roles):
        _build_images(engine, ready, cfg)
    names = sorted(runs[0][0])
    request = Request(
        runs=ready,
        scheduler=engine.backend,
        session=session,
        cfg=dict(cfg),
        component=component,
        identity=[identity, names, engine.backend, session, dict(cfg), str(workspace or ""), _directory()],
        at_once=at_once,
        default_at_once=1 if engine.on_this_machine else 0,
        after=[list(each) for each in after],
        fresh=fresh,
        delayed=delayed,
        engine_of=lambda name: engine if name == engine.backend else create_scheduler(name, session),
    )
    submitted = submit(request)
    notes = [*info.notes, *submitted.notes]
    if submitted.existed and (script := runner_prepare.changed_since(ready[0][1], engine, submitted.at)):
        notes.append(f"{script} has changed since the sweep was submitted")
    return submitted, notes


def sweep(
    runner: Host,
    component: str,
    parameters: Mapping[str, Iterable[Any]] | Iterable[Data],
    scheduler: str,
    component_args: Sequence[str] | Data,
    cfg: RunOptions,
    workspace: str | Workspace | None,
    at_once: int | None,
) -> str:
    """Submits a sweep and returns its handle; see :meth:`torchx.runner.Runner.sweep`."""
    named: Data | None = None
    argv: list[str] = []
    if isinstance(component_args, Mapping):
        named = component_args
    else:
        argv = list(component_args)
    rows = of_data(parameters)
    runs = applications(component, rows, argv, named=named, section=runner._component_defaults.get(component))
    submitted, _ = submit_sweep(
        runner.scheduler(scheduler),
        runs,
        session=runner._name,
        cfg=cfg,
        workspace=workspace,
        load_config=runner.load_config,
        component=component,
        identity=[component, argv, dict(named or {})],
        at_once=at_once,
    )
    handle = handle_of(submitted)
    resolve.remember_last(handle)
    return handle


def sweep_of(runner: Host, handle: str, described: DescribeAppResponse) -> Sweep:
    """Returns a sweep, or another application as a sweep of one run."""
    backend, session, app_id = parse_app_handle(handle)
    if runner.scheduler(backend).has_runs:
        return view.require(app_id)
    return view.of_application(described, backend, session)


def trackers_of(config: Config) -> list[TrackerBase]:
    """Returns the configured trackers."""
    configured, factories = runner_prepare.configured_trackers(config)
    if configured:
        return list(tracker_configured.build_trackers(configured, factories))
    return []


def results_of(
    runner: Host, sweep: Sweep, metrics: Sequence[Metric] = (), *, usual: bool
) -> Iterator[Result]:
    """Yields the results of runs, with the metrics in the logs and those of the configured trackers.

    Args:
        runner: used to read the logs.
        sweep: the sweep.
        metrics: metrics to read from the logs.
        usual: read the usual metrics too.
    """
    trackers = trackers_of(runner.load_config())
    return results.results(sweep, runner.scheduler, metrics, trackers, usual=usual)


def _build_images(engine: AnyScheduler, runs: Sequence[tuple[Row, AppDef]], cfg: RunOptions) -> None:
    """Builds the image of each workspace once, and uses it for all runs."""
    assert isinstance(engine, BuildsImages)
    images: dict[str, tuple[str, Workspace | None]] = {}
    for _, app in runs:
        key = str([(role.image, role.workspace) for role in app.roles])
        if key not in images:
            info = engine.submit_dryrun(app, cfg)
            engine.build_planned_images(info)
            assert info.app is not None
            images |= {f"{key} {role.name}": (role.image, role.workspace) for role in info.app.roles}
            images[key] = ("", None)
        for role in app.roles:
            role.image, role.workspace = images[f"{key} {role.name}"]


def _directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  # a string
    except OSError:
        return ""


def handle_of(submitted: Submitted) -> str:
    """Returns the handle of a sweep."""
    return make_app_handle(BACKEND, submitted.session, submitted.sweep)
