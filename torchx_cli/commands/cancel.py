"""`torchx cancel`: cancel applications."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import typer

from torchx.runner.status import status_of
from torchx_cli.applications import ACTIVE, find
from torchx_cli.flags import Name, States
from torchx_cli.selection import All, Handles, OfScheduler, Selection, Yes, selected
from torchx_cli.session import session_of
from torchx_cli.terminal.ending import last_line
from torchx_cli.terminal.output import note, print_stderr

if TYPE_CHECKING:
    from torchx.runner.api import Runner

PATIENCE = 0.5
"""Seconds before a message says that the command is waiting."""


def cancel_(
    ctx: typer.Context,
    handles: Handles = None,
    every: All = False,
    state: States = "",
    name: Name = "",
    scheduler: OfScheduler = "",
    yes: Yes = False,
) -> int:
    """Cancel applications: send TERM to all processes, and KILL after a grace period.

    On a local scheduler the command returns when they have ended. Ended applications are unchanged. Of
    several applications with the same name, a running one is chosen.
    """
    session = session_of(ctx)
    with session.runner() as runner:
        selection = Selection(handles or (), every, state, name, scheduler)
        texts = selected(runner, session, selection, ACTIVE, "" if yes else "cancel")
        if texts is None:
            return 1
        # check all before cancelling any
        applications = [find(runner, text, prefer=ACTIVE) for text in texts]
        for handle, described in applications:
            if not status_of(described).is_terminal():
                runner.cancel(handle)
        for handle, described in applications:
            if status_of(described).is_terminal():
                note(f"{described.app_id} has already ended: {described.state.name}")
            elif runner.wakes(handle):
                wait_for_end(runner, handle, described.app_id)
            else:
                note(f"{described.app_id} is being cancelled")
    return 0


def wait_for_end(runner: Runner, handle: str, app_id: str) -> None:
    """Waits until an application has ended and prints its state, with a message if it takes long."""
    patience = threading.Timer(PATIENCE, note, [f"{app_id} is being cancelled, waiting for it to clean up"])
    patience.daemon = True
    patience.start()
    try:
        status = runner.wait(handle)
    finally:
        patience.cancel()
    if status is not None:
        print_stderr(last_line(app_id, status, sys.stderr))
