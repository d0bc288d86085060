"""`torchx rerun` of sweeps: their failed runs in the same sweep, or all runs as a new one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import TorchxError, UsageError
from torchx.runner import resolve, sweeps
from torchx.specs.handles import parse_app_handle
from torchx.sweeps import after, submission, view
from torchx.sweeps.paths import paths_of
from torchx.sweeps.view import require
from torchx_cli.sweep import attach as sweep_attach
from torchx_cli.terminal import attach
from torchx_cli.terminal.error_output import about
from torchx_cli.terminal.output import counted, emit, note, note_all

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx_cli.resubmission import Submission
    from torchx_cli.run_request import RunRequest

ENDED_BADLY = ("FAILED", "CANCELLED")


def check(request: RunRequest, *, changed: bool) -> None:
    """Rejects flags that change the runs of a sweep.

    Raises:
        UsageError: such a flag is given.
    """
    if request.show:
        raise UsageError("--show does not apply to sweeps", code="conflicting_flags")
    given = request.environment
    variables = (*given.env, *given.files, *given.secrets)
    changes = (request.scheduler, request.scheduler_args, variables, request.tags, request.note, request.name)
    if changed or any(changes) or request.dryrun or request.once:
        raise UsageError(
            "a sweep runs again as it was submitted",
            hint="with changes: torchx run --each ..., or rerun one of its runs",
            code="conflicting_flags",
        )


def others_of(recorded: Submission, runner: Runner, *, once: bool) -> list[after.After]:
    """Returns the applications that a recorded application waited for and that a repetition waits for.

    Args:
        recorded: the recorded application.
        runner: used to query their states.
        once: the repetition is submitted under a name, and waits for none; a note names them.
    """
    name = recorded.app.metadata.get(settings.RUN) or parse_app_handle(recorded.handle).app_id
    paths = paths_of(str(name))
    if not paths.delayed.exists() or (sweep := view.find(paths)) is None:
        return []
    return left_of(runner, sweep, once=once)


def left_of(runner: Runner, sweep: view.Sweep, *, once: bool = False) -> list[after.After]:
    """Returns the applications that a sweep waited for and that have not ended.

    A note names those that are left out though their condition is not met.
    """
    left: list[after.After] = []
    for handle, condition in sweep.header.after:
        status = None
        with suppress(TorchxError, OSError):
            status = runner.status(handle)
        if status is not None and not status.is_terminal() and not once:
            left.append([handle, condition])
        elif status is None or not after.is_met(condition, status.state.name):
            note(f"note: starts now: --after {parse_app_handle(handle).app_id}:{condition} is not repeated")
    return left


def rerun_sweep(handle: str, runner: Runner, request: RunRequest, form: str, *, failed: bool) -> int:
    """Runs the failed and cancelled runs of a sweep again, or all runs as a new sweep.

    Args:
        handle: the sweep.
        runner: used to wait for the end.
        request: whether to wait.
        form: the output format.
        failed: only those that have failed or were cancelled, in the same sweep.

    Raises:
        StateError: the sweep does not exist, or cannot be submitted.
    """
    app_id = parse_app_handle(handle).app_id
    sweep = require(app_id)
    total, position = len(sweep.runs), 0
    notes: tuple[str, ...] = ()
    if failed:
        numbers = sorted(run.number for state in ENDED_BADLY for run in sweep.in_state(state))
        if numbers:
            position = submission.again(sweep, numbers)
        count = len(numbers)
    else:
        submitted = submission.repeat(sweep, left_of(runner, sweep))
        handle, count, notes = sweeps.handle_of(submitted), submitted.added, submitted.notes
    resolve.remember_last(handle)
    if form == "text":
        attach.print_handle(handle)
    with about(handle):
        note_all(notes)
        note(f"submitted again: {count:,} of {counted(total, 'run')}" if count else "no run has failed")
        engine = runner.scheduler(sweep.header.scheduler)
        waits = count and not request.detach and (request.wait or request.log or engine.attaches_by_default)
        code = 0
        if waits:
            code = sweep_attach.to_the_end(
                runner, handle, position, logs=request.log, fold=request.fold, form=form
            )
        if form == "json":
            data = attach.as_data(runner, handle, runner.status(handle), code)
            emit({**data, "runs": total, "submitted": count}, "json", hide=True, flush=True)
    return code
