"""`torchx cancel`: ends applications."""

from __future__ import annotations

import sys

import typer

from torchx_cli.flags import Handles
from torchx_cli.output import note
from torchx_cli.session import session_of


def cancel_(ctx: typer.Context, handles: Handles) -> None:
    """End applications: TERM to all they run, time to clean up, then KILL.

    An application that has ended already stays as it is.
    """
    from torchx.runner.status import status_of
    from torchx_cli.applications import find
    from torchx_cli.ending import last_line

    with session_of(ctx).runner() as runner:
        found = [find(runner, handle) for handle in handles]  # all are known before one is ended
        for handle, described in found:
            if status_of(described).is_terminal():
                note(f"{described.app_id} has ended already: {described.state.name}")
                continue
            runner.cancel(handle)
            status = runner.status(handle)
            if status is not None and status.is_terminal():
                print(last_line(described.app_id, status, sys.stderr), file=sys.stderr)
            else:
                note(f"{described.app_id} is being cancelled")
