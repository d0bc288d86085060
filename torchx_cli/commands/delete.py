"""`torchx delete`: removes applications with all that is kept of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import StateError
from torchx_cli.flags import Handles
from torchx_cli.session import session_of
from torchx_cli.terminal.output import note

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse


def delete_(
    ctx: typer.Context,
    handles: Handles,
    force: Annotated[
        bool, typer.Option("--force", help="Also one that has not ended: cancel it first.")
    ] = False,
) -> None:
    """Remove ended applications from their scheduler, with their logs.

    One that has not ended is refused without --force, and then none of them is removed.
    """
    from torchx_cli.applications import short

    with session_of(ctx).runner() as runner:
        found = [_find(runner, handle) for handle in handles]
        for handle, described in found:
            if not force and not _has_ended(described):
                called = short(runner, handle)
                raise StateError(
                    f"{described.app_id} has not ended, it is {described.state.name}",
                    hint=f"torchx cancel {called}   or at once: torchx delete --force {called}",
                )
        for handle, described in found:
            runner.delete(handle)
            note(f"{described.app_id} is deleted")


def _find(runner: Runner, text: str) -> tuple[str, DescribeAppResponse]:
    """Returns the handle that a person means, and the application, as it is listed if it cannot be read."""
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.query import AppQuery
    from torchx.specs.handles import UnknownAppException, parse_app_handle
    from torchx.specs.status import AppState
    from torchx_cli.applications import find

    try:
        return find(runner, text)
    except UnknownAppException:
        raise
    except StateError:
        handle = runner.resolve_handle(text)
        backend, _, app_id = parse_app_handle(handle)
        for app in runner.select(backend, AppQuery(called=app_id)):
            if app.app_id == app_id and app.state is AppState.UNKNOWN:
                return handle, DescribeAppResponse(app_id, app.state, ended_at=app.ended_at, msg=app.msg)
        raise


def _has_ended(described: DescribeAppResponse) -> bool:
    """Returns True when nothing of an application runs, in whatever state it was left."""
    from torchx.runner.status import status_of
    from torchx.specs.status import AppState

    over = described.state is AppState.UNKNOWN and described.ended_at is not None
    return over or status_of(described).is_terminal()
