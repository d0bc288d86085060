"""`torchx delete`: delete ended applications with their logs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import StateError
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.pace import together
from torchx.scheduling.query import AppQuery
from torchx.scheduling.responses import status_of
from torchx.specs.handles import UnknownAppException, parse_app_handle
from torchx.specs.status import AppState
from torchx_cli.applications import ACTIVE, find, short_name
from torchx_cli.flags import Json, Name, Output, States
from torchx_cli.selection import All, Everywhere, Handles, OfScheduler, Selection, Since, Yes, selected
from torchx_cli.session import session_of
from torchx_cli.terminal.error_output import Failures
from torchx_cli.terminal.output import emit, note, output_format

if TYPE_CHECKING:
    from torchx.runner.api import Runner

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


def delete_(
    ctx: typer.Context,
    handles: Handles = None,
    every: All = False,
    state: States = "",
    name: Name = "",
    since: Since = "",
    scheduler: OfScheduler = "",
    everywhere: Everywhere = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also cancel and delete applications that have not ended.")
    ] = False,
    yes: Yes = False,
    output: Output = "",
    json: Json = False,
) -> int:
    """Delete ended applications from their scheduler, with their logs.

    --force also cancels and deletes those that run. Without it, --all, --state and the like select only ended
    ones. If one does not exist or cannot be deleted, the others still are, and the first error sets the exit
    code.
    """
    form = output_format(output, json)
    session = session_of(ctx)
    with session.runner() as runner:
        states = ENDED | ACTIVE if force else ENDED
        selection = Selection(handles or (), every, state, name, since, scheduler, everywhere)
        texts = selected(runner, session, selection, states, "" if yes else "delete")
        if texts is None:
            return 1
        failures = Failures(texts, form)
        with together(len(texts)):
            applications = failures.find_each(texts, partial(_find, runner))
        for handle, described in applications:
            with failures.of(handle):
                if not force and not _has_ended(described):
                    raise _not_ended(runner, handle, described)
                runner.delete(handle)
                note(f"{described.app_id} is deleted")
    if form != "text":
        emit(failures.rows("deleted", applications), form, hide=True)
    return failures.exit_code


def _not_ended(runner: Runner, handle: str, described: DescribeAppResponse) -> StateError:
    name = short_name(runner, handle)
    return StateError(
        f"{described.app_id} has not ended, it is {described.state.name}",
        hint=f"torchx cancel {name}   or both: torchx delete --force {name}",
        code="not_ended",
        facts={"handle": handle, "state": described.state.name},
    )


def _find(runner: Runner, text: str) -> tuple[str, DescribeAppResponse]:
    """Returns the full handle and the description, or the listing if the record cannot be read."""
    try:
        return find(runner, text, prefer=ENDED, acts=True)
    except UnknownAppException:
        raise
    except StateError:
        handle = runner.resolve_handle(text, acts=True)
        backend, _, app_id = parse_app_handle(handle)
        for app in runner.select(backend, AppQuery(called=app_id)):
            if app.app_id == app_id and app.state is AppState.UNKNOWN:
                return handle, DescribeAppResponse(app_id, app.state, ended_at=app.ended_at, msg=app.msg)
        raise


def _has_ended(described: DescribeAppResponse) -> bool:
    """Returns True if no part of an application is running."""
    over = described.state is AppState.UNKNOWN and described.ended_at is not None
    return over or status_of(described).is_terminal()
