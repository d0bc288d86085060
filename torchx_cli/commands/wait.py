"""`torchx wait`: wait until applications have ended, or meet another condition."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import TorchxError, UsageError
from torchx.exit_codes import TIMED_OUT
from torchx.lazy import lazy_imports
from torchx.machine.readers import Readers
from torchx.runner.survey import LateError
from torchx.scheduling.pace import deadline, seconds_left, together
from torchx_cli import conditions
from torchx_cli.applications import ACTIVE, find
from torchx_cli.conditions import DONE, LOG, STALLED, Outcome
from torchx_cli.flags import Json, Name, Output, States, option
from torchx_cli.selection import All, Everywhere, Handles, OfScheduler, Selection, Since, selected
from torchx_cli.session import session_of
from torchx_cli.terminal.attach import app_id_of, as_data, exit_code
from torchx_cli.terminal.error_output import Failures
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import emit, note, output_format, say

with lazy_imports:
    from torchx.scheduling import stalls
    from torchx_cli.sweep import attach as sweep_attach

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner

EXIT_UNMET = 3
"""The application ended without meeting the condition of `--for`."""

LONGEST_ANSWER = 600.0
"""Maximum seconds to wait for the answer of a scheduler; its own limits are shorter."""

PATIENCE = 0.5
"""Seconds before a message says that the command is waiting."""


def wait_(
    ctx: typer.Context,
    handles: Handles = None,
    condition: Annotated[
        str,
        option(
            "--for",
            metavar="CONDITION",
            help="done (default), running, ready (all replicas run, services are ready), stalled, "
            "log:REGEX (a line matches), or a state such as failed.",
        ),
    ] = DONE,
    first: Annotated[
        bool, typer.Option("--any", help="Return when the first application meets the condition.")
    ] = False,
    every: All = False,
    state: States = "",
    name: Name = "",
    since: Since = "",
    scheduler: OfScheduler = "",
    everywhere: Everywhere = False,
    timeout: Annotated[
        str,
        option("--timeout", metavar="S", help="Stop waiting after this many seconds; 10m and 2h work too."),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Wait until applications end and return their result, or until they meet a condition.

    The exit code is 0 if all succeeded, else that of the replica that failed first in the first
    application that failed. With --for, it is 0 if the condition is met, and 3 if an application ended
    before. After a timeout it is 124, and the applications keep running. If the state of one cannot be
    read, the command waits for the others and returns the code of the first error.
    """
    form = output_format(output, json)
    limit = None
    if timeout:
        limit = stalls.seconds("--timeout", timeout)
    condition = conditions.check(condition)
    if first and every:
        raise UsageError("--any cannot be combined with --all", code="conflicting_flags")
    session = session_of(ctx)
    with session.runner() as runner:
        selection = Selection(handles or (), every, state, name, since, scheduler, everywhere)
        resolved = selected(runner, session, selection, ACTIVE) or []
        if handles:
            with together(len(handles)):
                resolved = [_found(runner, handle, limit) for handle in handles]
        text = form == "text"
        resolved = list(dict.fromkeys(resolved))
        failures = Failures(resolved, form)
        outcomes = wait_for_all(runner, resolved, condition, limit, failures, first=first, text=text)
        if not text:
            emit([_as_data(runner, outcome, condition, failures) for outcome in outcomes], form, hide=True)
    enough = first and any(outcome.met for outcome in outcomes)
    return (0 if enough else failures.exit_code) or _code(outcomes, condition, first=first)


def _found(runner: Runner, handle: str, limit: float | None) -> str:
    """Returns the full handle of an application; waits for a scheduler that is slow."""
    try:
        return find(runner, handle, prefer=ACTIVE)[0]
    except LateError as error:
        note(f"{error.message}; waiting for it")
    return find(runner, runner.resolve_handle(handle, ACTIVE, limit or LONGEST_ANSWER))[0]


def _as_data(runner: Runner, outcome: Outcome, condition: str, failures: Failures) -> Object:
    data = {**as_data(runner, outcome.handle, outcome.status), "error": failures.as_data(outcome.handle)}
    if condition == DONE:
        return data
    return {**data, "for": condition, "met": outcome.met, "line": outcome.line, "replica": outcome.replica}


def _code(outcomes: list[Outcome], condition: str, *, first: bool) -> int:
    """Returns the exit code of the command."""
    if first:
        outcomes = [outcome for outcome in outcomes if outcome.met] or outcomes
    met = [outcome.met for outcome in outcomes]
    if None in met:
        return TIMED_OUT
    if condition != DONE:
        if all(met):
            return 0
        if any(outcome.status is None for outcome in outcomes):
            return 1
        return EXIT_UNMET
    # an application that its scheduler no longer knows counts as failed
    results = [(_end_of(o), 1 if o.status is None else exit_code(o.status)) for o in outcomes]
    return next((result for _, result in sorted(results) if result), 0)


def _end_of(outcome: Outcome) -> float:
    status = outcome.status
    if status is not None and status.ended_at is not None:
        return status.ended_at.timestamp()
    return 0.0


def wait_for_all(
    runner: Runner,
    handles: list[str],
    condition: str,
    limit: float | None,
    failures: Failures,
    *,
    first: bool = False,
    text: bool = True,
) -> list[Outcome]:
    """Waits until applications meet a condition, prints each result, and returns the outcomes.

    Args:
        runner: used to wait.
        handles: the applications.
        condition: the condition.
        limit: maximum wait in seconds, or None. 0 checks the present state, log or events.
        failures: receives the errors of some of several applications, whose outcome is unknown.
        first: return when one of them meets the condition; the outcomes of the others so far are included.
        text: print matching lines on stdout.
    """
    end = deadline(limit)
    late = math.inf
    if conditions.is_unlimited(condition) and limit:
        late = end
    readers = Readers[Outcome](2 * len(handles))
    for handle in handles:
        readers.add(_outcomes(runner, handle, condition, end, follow=limit != 0), "wait")
    outcomes: dict[str, Outcome] = {}
    patience = threading.Timer(PATIENCE, _print_waiting, [runner, handles])
    patience.daemon = True
    patience.start()
    while len(outcomes) < len(handles):
        found = readers.get(seconds_left(late))
        if found is None and time.monotonic() < late:
            continue  # the end of a thread
        if found is None:
            left = next(handle for handle in handles if handle not in outcomes)
            found = Outcome(left, runner.status(left), None)  # a log may be too long to be read again
        patience.cancel()
        if found.handle not in outcomes:
            outcomes[found.handle] = found
            if found.error is not None:
                failures.add(found.handle, found.error)
            else:
                _print(runner, found, condition, text=text)
        if first and found.met:
            break
    return [outcomes[handle] for handle in handles if handle in outcomes]


def _outcomes(runner: Runner, handle: str, condition: str, end: float, *, follow: bool) -> Iterator[Outcome]:
    """Waits for one application, in a thread of its own, and yields the outcome.

    Args:
        runner: used to wait.
        handle: the application.
        condition: the condition.
        end: the time by ``time.monotonic()`` at which the wait times out; infinity for no limit.
        follow: wait for more of a log or events.
    """
    try:
        if condition.startswith(LOG):
            yield conditions.search(runner, handle, condition, follow=follow)
        elif condition == STALLED:
            yield conditions.check_stalled(runner, handle, follow=follow)
        else:
            yield conditions.wait_for(runner, handle, condition, end)
    except TorchxError as error:
        yield Outcome(handle, None, None, error=error)


def _print(runner: Runner, outcome: Outcome, condition: str, *, text: bool) -> None:
    """Prints the result of an application: a matching line on stdout, all else on stderr."""
    app_id, status = app_id_of(outcome.handle), outcome.status
    if outcome.met and outcome.line is not None:
        if text:
            say(mask_text(outcome.line), flush=True)
    elif status is None:
        note(f"{app_id} is no longer known to its scheduler")
    elif outcome.met is None:
        still = "" if status.is_terminal() else "still "
        note(f"{app_id} is {still}{status.state.name}: timed out")
    elif condition == DONE or (outcome.met and status.is_terminal()):
        sweep_attach.print_any_result(runner, outcome.handle, status, seen=False)
    elif outcome.met:
        note(f"{app_id} is {condition if condition in ('ready', 'stalled') else status.state.name}")
    else:
        note(f"{app_id} has ended and is {status.state.name}; the condition `{condition}` was not met")


def _print_waiting(runner: Runner, handles: list[str]) -> None:
    if len(handles) > 1:
        note(f"waiting for {len(handles)} applications")
        return
    for handle in handles:
        try:
            status = runner.status(handle)
        except Exception:  # the wait itself reports the error
            return
        why = ""
        if status is not None and status.msg:
            why = f": {status.msg}"
        if status is not None and not status.is_terminal():
            note(f"waiting for {app_id_of(handle)}, which is {status.state.name}{why}")
