"""`torchx cancel`: ends applications."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from torchx_cli.flags import Handles
from torchx_cli.session import session_of
from torchx_cli.terminal.output import note, tell

if TYPE_CHECKING:
    from torchx.runner.api import Runner

PATIENCE = 0.5
"""Seconds of waiting before a person is told what for."""


def cancel_(ctx: typer.Context, handles: Handles) -> None:
    """End applications: TERM to all they run, time to clean up, then KILL.

    On a local scheduler the command returns when they have ended. One that has ended already stays
    as it is.
    """
    from torchx.runner.status import status_of
    from torchx_cli.applications import find

    with session_of(ctx).runner() as runner:
        found = [find(runner, handle) for handle in handles]  # all are known before one is ended
        for handle, described in found:
            if not status_of(described).is_terminal():
                runner.cancel(handle)
        for handle, described in found:
            if status_of(described).is_terminal():
                note(f"{described.app_id} has ended already: {described.state.name}")
            elif runner.wakes(handle):
                wait_for_end(runner, handle, described.app_id)
            else:
                note(f"{described.app_id} is being cancelled")


def wait_for_end(runner: Runner, handle: str, app_id: str) -> None:
    """Waits for the end of an application and tells it; says so when that takes a while."""
    from threading import Timer

    from torchx_cli.terminal.ending import last_line

    patience = Timer(PATIENCE, note, [f"{app_id} is being cancelled: it has time to clean up"])
    patience.daemon = True
    patience.start()
    try:
        status = runner.wait(handle)
    finally:
        patience.cancel()
    if status is not None:
        tell(last_line(app_id, status, sys.stderr))
