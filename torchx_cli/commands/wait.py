"""`torchx wait`: wait until applications have ended."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.lazy import lazy_imports
from torchx_cli.applications import ACTIVE, find
from torchx_cli.flags import Json, Name, Output, States, option
from torchx_cli.selection import All, Handles, OfScheduler, Selection, selected
from torchx_cli.session import session_of
from torchx_cli.terminal.attach import app_id_of, as_data, exit_code, print_result
from torchx_cli.terminal.output import emit, note, output_format
from torchx_cli.terminal.times import seconds

with lazy_imports:
    import queue

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus

EXIT_TIMEOUT = 124
"""Timed out, as for timeout(1)."""

PATIENCE = 0.5
"""Seconds before a message says that the command is waiting."""


def wait_(
    ctx: typer.Context,
    handles: Handles = None,
    every: All = False,
    state: States = "",
    name: Name = "",
    scheduler: OfScheduler = "",
    timeout: Annotated[
        str, option("--timeout", metavar="S", help="Maximum wait in seconds; 10m and 2h work too.")
    ] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Wait until applications have ended and return their result.

    The exit code is 0 if all succeeded, else that of the first application that failed: the exit code
    of its replica that failed first. It is 124 after a timeout; the applications keep running.
    """
    form = output_format(output, json)
    limit = seconds("--timeout", timeout) if timeout else None
    session = session_of(ctx)
    with session.runner() as runner:
        selection = Selection(handles or (), every, state, name, scheduler)
        resolved = selected(runner, session, selection, ACTIVE) or []
        if handles:
            resolved = [find(runner, handle, prefer=ACTIVE)[0] for handle in handles]
        ended = wait_for_all(runner, list(dict.fromkeys(resolved)), limit)
        if form != "text":
            emit([as_data(handle, status) for handle, status in ended.items()], form, hide=True)
    results = [_result(status) for status in ended.values()]
    if None in results:
        return EXIT_TIMEOUT
    failed = [(_end_of(status), result) for status, result in zip(ended.values(), results, strict=True)]
    return next((result for _, result in sorted(failed, key=lambda item: item[0]) if result), 0)


def _end_of(status: AppStatus | None) -> float:
    return status.ended_at.timestamp() if status is not None and status.ended_at is not None else 0.0


def _result(status: AppStatus | None) -> int | None:
    """Returns the exit code for an application, or None if it has not ended."""
    if status is None:
        return 1  # no longer known to its scheduler
    return exit_code(status) if status.is_terminal() else None


def wait_for_all(runner: Runner, handles: list[str], limit: float | None) -> dict[str, AppStatus | None]:
    """Waits until applications have ended, prints each result, and returns the statuses.

    Args:
        runner: used to wait.
        handles: the applications.
        limit: maximum wait in seconds, or None.
    """
    end = None if limit is None else time.monotonic() + limit
    ready: queue.Queue[tuple[str, AppStatus | Exception | None]] = queue.Queue()

    def wait(handle: str) -> None:
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            ready.put((handle, runner.wait(handle, timeout=left)))
        except Exception as error:  # raised in the main thread
            ready.put((handle, error))

    for handle in handles:
        threading.Thread(target=wait, args=(handle,), daemon=True).start()
    ended: dict[str, AppStatus | None] = dict.fromkeys(handles)
    patience = threading.Timer(PATIENCE, _print_waiting, [runner, handles])
    patience.daemon = True
    patience.start()
    for _ in handles:
        handle, status = ready.get()
        if isinstance(status, Exception):
            raise status
        patience.cancel()
        ended[handle] = status
        if status is None:
            note(f"{app_id_of(handle)} is no longer known to its scheduler")
        elif status.is_terminal():
            print_result(runner, handle, status, seen=False)
        else:
            note(f"{app_id_of(handle)} is still {status.state.name}: timed out")
    return ended


def _print_waiting(runner: Runner, handles: list[str]) -> None:
    if len(handles) > 1:
        note(f"waiting for {len(handles)} applications")
        return
    for handle in handles:
        try:
            status = runner.status(handle)
        except Exception:  # the wait itself reports the error
            return
        why = f": {status.msg}" if status is not None and status.msg else ""
        if status is not None and not status.is_terminal():
            note(f"waiting for {app_id_of(handle)}, which is {status.state.name}{why}")
