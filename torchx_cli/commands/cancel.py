"""`torchx cancel`: cancel applications."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from torchx.runner.resolve import SESSION
from torchx.runner.survey import survey
from torchx.scheduling.pace import sharing, together
from torchx.scheduling.protocols import Waits
from torchx.scheduling.responses import status_of
from torchx.sweeps import BACKEND
from torchx.sweeps.parts import NotStartedError
from torchx_cli.applications import ACTIVE, find
from torchx_cli.flags import Json, Name, Output, States
from torchx_cli.selection import All, Everywhere, Handles, OfScheduler, Selection, Since, Yes, selected
from torchx_cli.session import session_of
from torchx_cli.terminal.ending import last_line
from torchx_cli.terminal.error_output import Failures
from torchx_cli.terminal.output import emit, note, output_format, paint_state, print_stderr

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppState

PATIENCE = 0.5
"""Seconds before a message says that the command is waiting."""


def cancel_(
    ctx: typer.Context,
    handles: Handles = None,
    every: All = False,
    state: States = "",
    name: Name = "",
    since: Since = "",
    scheduler: OfScheduler = "",
    everywhere: Everywhere = False,
    yes: Yes = False,
    output: Output = "",
    json: Json = False,
) -> int:
    """Cancel applications: send TERM to all processes, and KILL after a grace period.

    On a local scheduler the command returns when they have ended. Ended applications stay as they are.
    If several have the same name, a running one is chosen. If one does not exist or cannot be cancelled,
    the others still are, and the first error sets the exit code.
    """
    form = output_format(output, json)
    session = session_of(ctx)
    with session.runner() as runner:
        selection = Selection(handles or (), every, state, name, since, scheduler, everywhere)
        texts = selected(runner, session, selection, ACTIVE, "" if yes else "cancel")
        if texts is None:
            return 1
        failures = Failures(texts, form)
        unstarted: list[NotStartedError] = []
        with together(len(texts)):
            applications = failures.find_each(texts, partial(_find, runner, unstarted))
        ends = _cancel(runner, applications, failures)
        rows = [_drop(run) for run in unstarted]
        rows += failures.rows("cancelled", applications, ends)
    if form != "text":
        emit(rows, form, hide=True)
    return failures.exit_code


def _cancel(
    runner: Runner, applications: Sequence[tuple[str, DescribeAppResponse]], failures: Failures
) -> dict[str, AppState | None]:
    """Cancels those that run, and waits for all of them; returns their states, None if unknown."""
    active: dict[str, str] = {}
    for handle, described in applications:
        if status_of(described).is_terminal():
            note(f"{described.app_id} has already ended: {described.state.name}")
            continue
        with failures.of(handle), sharing():
            runner.cancel(handle)
            active[handle] = described.app_id
    ends: dict[str, AppState | None] = {}
    found = survey(active, lambda handle: _follow(runner, handle, active[handle]), threading.TIMEOUT_MAX)
    for handle, end in found.items():
        with failures.of(handle):
            if isinstance(end, Exception):
                raise end
            ends[handle] = end
    return ends


def _follow(runner: Runner, handle: str, app_id: str) -> AppState | None:
    if isinstance(runner.scheduler_of(handle), Waits):
        return wait_for_end(runner, handle, app_id)
    note(f"{app_id} is being cancelled")
    return None


def _find(
    runner: Runner, unstarted: list[NotStartedError], text: str
) -> tuple[str, DescribeAppResponse] | None:
    """Finds an application; a run of a sweep that has not started is added to a list."""
    try:
        return find(runner, text, prefer=ACTIVE, acts=True)
    except NotStartedError as error:
        if not error.may_drop:
            raise
        unstarted.append(error)
        return None


def _drop(run: NotStartedError) -> dict[str, Any]:
    """Cancels a run that has not started; returns the result as plain data."""
    state, name = run.drop(), f"{run.app_id}/{run.number}"
    print_stderr(f"{name} {paint_state(state, sys.stderr)}")
    return {
        "handle": f"{BACKEND}://{SESSION}/{name}",
        "app_id": name,
        "scheduler": BACKEND,
        "state": state,
        "cancelled": True,
        "error": None,
    }


def wait_for_end(runner: Runner, handle: str, app_id: str) -> AppState | None:
    """Waits until an application has ended, prints its state and returns it.

    A message is printed if it takes long. None is returned if the scheduler no longer knows the application.
    """
    patience = threading.Timer(PATIENCE, note, [f"{app_id} is being cancelled, waiting for it to clean up"])
    patience.daemon = True
    patience.start()
    try:
        status = runner.wait(handle)
    finally:
        patience.cancel()
    if status is None:
        return None
    print_stderr(last_line(app_id, status, sys.stderr))
    return status.state
