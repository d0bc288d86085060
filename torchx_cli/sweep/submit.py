"""Submits sweeps for `torchx run --each`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from torchx.config.paths import component_settings
from torchx.errors import TorchxError, UnreachableError, UsageError
from torchx.lazy import lazy_imports
from torchx.runner import resolve, sweeps
from torchx.scheduling.notes import as_note
from torchx.specs.handles import UnknownAppException, make_app_handle
from torchx.sweeps import after, delayed, parameters, plan
from torchx.sweeps.view import require
from torchx_cli.applications import ACTIVE, find
from torchx_cli.door import feature
from torchx_cli.flags import FULL
from torchx_cli.placement import placement
from torchx_cli.rule_flags import rule_notes
from torchx_cli.terminal.error_output import about
from torchx_cli.terminal.masking import remember
from torchx_cli.terminal.output import counted, emit, note, note_all

with lazy_imports:
    from torchx.runner import notifications
    from torchx_cli import recording
    from torchx_cli.sweep import attach as sweep_attach
    from torchx_cli.sweep import best
    from torchx_cli.terminal import attach, dryrun_output, streaming

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.runner.api import Runner
    from torchx.specs.app import AnyDryRunInfo, AppDef
    from torchx.specs.status import AppStatus
    from torchx.sweeps.parameters import Row
    from torchx.sweeps.submission import Submitted
    from torchx_cli.placement import Placement
    from torchx_cli.recording import Recording
    from torchx_cli.run_request import RunRequest


def submit_sweep(request: RunRequest, form: str, config: Config, opened: Any) -> int:
    """Submits a sweep, waits for its end if needed, and returns the exit code.

    Args:
        request: the component, and how to run it.
        form: the output format.
        config: the configuration.
        opened: a context with the runner.

    Raises:
        UsageError: a parameter or an argument of a run is invalid; nothing is submitted.
        StateError: the sweep cannot be recorded.
    """
    if request.once:
        raise UsageError("--once cannot be combined with --each or --after", code="conflicting_flags")
    rows = parameters.expand(request.sweep.each, zipped=request.sweep.zipped)
    distinct = {parameters.key_of(row): row for row in rows}
    if double := len(rows) - len(distinct):
        note(f"note: {counted(double, 'duplicate run')} left out")
    runs = _applications(request, config, [*distinct.values()])
    record = None
    if not request.dryrun:
        record = recording.of_run(runs[0][1])
        for _, app in runs[1:]:
            app.metadata |= {
                key: value for key, value in runs[0][1].metadata.items() if key.startswith("torchx/")
            }
    with opened as runner:
        placed = placement(request, runner, config)
        note_all(rule_notes(request.rules, runs[0][1], request.component))
        note_all(parameters.similar_names(request.argv, rows[0]))
        if request.context:
            return int(feature("contexts.remote_run").submit(runs, request, form, placed))
        if request.dryrun:
            return dryrun(request, form, runs, runner, placed)
        return submit_runs(request, form, runner, runs, placed, awaited(request, runner), record)


def submit_runs(
    request: RunRequest,
    form: str,
    runner: Runner,
    runs: list[tuple[Row, AppDef]],
    placed: Placement,
    others: Sequence[after.After],
    record: Recording | None,
) -> int:
    """Submits the runs of a sweep, or without parameters one application that waits for others.

    Args:
        request: how to run them.
        form: the output format.
        runner: submits them.
        runs: the parameters and the application of each run.
        placed: the scheduler and its options.
        others: the applications to wait for, each with its condition.
        record: records the source.
    """
    engine, names = runner.scheduler(placed.scheduler), filter(None, [request.name])
    with redirect_stdout(sys.stderr):
        submitted, notes = sweeps.submit_sweep(
            engine,
            runs,
            session=runner._name,
            cfg=placed.cfg,
            workspace=placed.workspace or None,
            parent_run_id=request.parent_run_id or None,
            load_config=runner.load_config,
            component=request.component,
            identity=[request.component, request.argv, request.component_args, others, *names],
            after=others,
            fresh=not request.sweep.each,
            at_once=request.sweep.at_once,
            delayed=not request.sweep.each,
        )
    request.origins.clear()
    handle = sweeps.handle_of(submitted)
    if not request.sweep.each:
        handle = runner.resolve_handle(make_app_handle(placed.scheduler, submitted.session, submitted.sweep))
    resolve.remember_last(handle)
    note_all(notes)
    if form == "text":
        attach.print_handle(handle)
    with about(handle):
        if request.sweep.each:
            note(_summary(submitted))
        if others and not submitted.existed:
            note(after.waiting(others, ()))
        if record is not None and not submitted.existed:
            record.begin(runner, handle, runner.dryrun(runs[0][1], placed.scheduler, placed.cfg))
        _notify(request, runner, handle)
        waits = not request.detach and (request.wait or request.log or engine.attaches_by_default)
        if not request.sweep.each:
            info = runner.dryrun(runs[0][1], placed.scheduler, placed.cfg)
            info.notes.append(after.waiting(others, ()))
            return _attached_job(request, form, runner, handle, info, waits=waits)
        return _attached_sweep(request, form, runner, handle, submitted, waits=waits)


def _attached_sweep(
    request: RunRequest, form: str, runner: Runner, handle: str, submitted: Submitted, *, waits: bool
) -> int:
    """Follows the runs of a sweep, and returns the exit code of the command."""
    code = 0
    if waits:
        code = sweep_attach.to_the_end(
            runner,
            handle,
            submitted.position,
            logs=request.log,
            fold=request.fold,
            numbers=submitted.numbers,
            form=form,
        )
    if form == "json":
        data = attach.as_data(runner, handle, _status(runner, handle, submitted), code)
        counts = {"runs": submitted.total, "submitted": submitted.added}
        emit({**data, **counts, "existed": not submitted.added}, "json", hide=True, flush=True)
    return code


def _attached_job(
    request: RunRequest, form: str, runner: Runner, handle: str, info: AnyDryRunInfo, *, waits: bool
) -> int:
    """Follows a single application that waits for others, and returns the exit code of the command."""
    assert info.app is not None
    counts = [(role.name, role.num_replicas) for role in info.app.roles]
    printer = streaming.printer_of(sys.stderr, counts, fold=request.fold)
    with attach.Attached(runner, info, waits, printer=printer, replicas={}, form=form) as attached:
        attached.handle, code = handle, 0
        if waits:
            code = attached.to_the_end()
        if form == "json":
            emit(attached.as_data(code), "json", hide=True)
    return code


def _status(runner: Runner, handle: str, submitted: Submitted) -> AppStatus | None:
    """Returns the status of the requested runs."""
    status = runner.status(handle)
    if status is None or len(submitted.numbers) == submitted.total:
        return status
    return sweep_attach.part_of(status, require(submitted.sweep), submitted.numbers)[0]


def awaited(request: RunRequest, runner: Runner) -> list[list[str]]:
    """Returns the handles of the applications to wait for, each with its condition.

    Raises:
        UsageError: a text is invalid.
        StateError: an application does not exist.
    """
    found = []
    for text in request.sweep.after:
        name, condition = after.split(text)
        try:
            handle = find(runner, name, prefer=ACTIVE, acts=True)[0]
        except (UnknownAppException, UnreachableError):
            _check_condition(runner, name)
            raise
        waiting = delayed.find(handle, runner.scheduler)
        if waiting is not None and not waiting.app_id:
            handle = waiting.sweep_handle
        found.append([handle, condition])
    return found


def _check_condition(runner: Runner, text: str) -> None:
    """Rejects an existing application with a condition that does not exist, such as ``prep:done``.

    Raises:
        UsageError: it is one.
    """
    before, _, last = text.rpartition(":")
    first, _, rest = text.partition(":")
    for name, condition in ((before, last), (rest, first)):
        if not name or not condition.isalnum():
            continue
        try:
            find(runner, name)
        except TorchxError:
            continue
        raise UsageError(
            f"unknown condition `{condition}` (from --after)",
            hint=f"conditions: {name}:ok, {name}:any, {name}:failed",
            code="invalid_value",
        )


def _applications(request: RunRequest, config: Config, rows: list[Row]) -> list[tuple[Row, AppDef]]:
    line: dict[str, str] = {}

    def finish(app: AppDef) -> AppDef:
        app = request.with_name(app)
        request.environment.apply(app)
        request.describe(app)
        if not line:
            remember(app.roles)
            recording.record_command(app, request.component, request.argv)
            line.update(app.metadata)
        app.metadata = {**line, **app.metadata}
        return app

    with redirect_stdout(sys.stderr):
        return sweeps.applications(
            request.component,
            rows,
            request.argv,
            named=request.component_args,
            section=component_settings(config, request.component),
            finish=finish,
        )


def dryrun(
    request: RunRequest, form: str, runs: list[tuple[Row, AppDef]], runner: Runner, placed: Placement
) -> int:
    """Prints the parameters of the runs, and the request of the first one."""
    first = plan.numbered(runs[0][1], 1)
    with redirect_stdout(sys.stderr):
        info = runner.dryrun(
            first, placed.scheduler, placed.cfg, placed.workspace or None, request.parent_run_id or None
        )
    note_all(info.notes)
    if request.sweep.each:
        note(f"{counted(len(runs), 'run')}; the request of the first one ({best.shown(runs[0][0])}):")
    dryrun_output.print_dryrun(info, form, full=request.dryrun == FULL)
    return 0


def _summary(submitted: Submitted) -> str:
    """Returns a line about a submission."""
    limit = ""
    if submitted.at_once:
        limit = f", {submitted.at_once:,} at the same time"
    if not submitted.existed:
        return f"{counted(submitted.total, 'run')}{limit}"
    again = f"  to run all again: torchx rerun {submitted.sweep}"
    if not submitted.added:
        return f"nothing was submitted: the sweep has these runs already{limit}\n{again}"
    failed = ""
    if submitted.again:
        failed = f", {submitted.again:,} of them again"
    text = f"{submitted.added:,} of {submitted.total:,} runs are submitted{failed}{limit}"
    if others := submitted.total - len(submitted.numbers):
        has = counted(others, "other run")
        return f"{text}; added to {submitted.sweep}, which has {has}; for a new sweep: --name NAME"
    if submitted.added == submitted.total:
        return text
    return f"{text}; the others exist\n{again}"


def _notify(request: RunRequest, runner: Runner, handle: str) -> None:
    if request.notify is None:
        return
    notes: list[str] = []
    with as_note(notes, "no notifications are sent"):
        notifications.check(request.notify, "sweep")
        notifications.request(runner, handle, request.notify)
    note_all(notes)
