"""`torchx delete`: removes applications with all that is kept of them."""

from __future__ import annotations

from typing import Annotated

import typer

from torchx.errors import StateError
from torchx_cli.flags import Handles
from torchx_cli.output import note
from torchx_cli.session import session_of


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
    from torchx.runner.status import status_of
    from torchx_cli.applications import find, short

    with session_of(ctx).runner() as runner:
        found = [find(runner, handle) for handle in handles]
        for handle, described in found:
            if not force and not status_of(described).is_terminal():
                called = short(runner, handle)
                raise StateError(
                    f"{described.app_id} has not ended, it is {described.state.name}",
                    hint=f"torchx cancel {called}   or at once: torchx delete --force {called}",
                )
        for handle, described in found:
            runner.delete(handle)
            note(f"{described.app_id} is deleted")
