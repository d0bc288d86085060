"""Report why an application is waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from torchx.errors import UnreachableError
from torchx.machine import threads
from torchx.runner.status import status_of
from torchx_cli.terminal.output import note

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus

PATIENCE = 0.5
"""Seconds before the first query and message."""

SHARE = 2
"""The command queries the engine, too: it waits for the end."""

WAITS = ("SUBMITTED", "PENDING")


class Waiting:
    """Prints why an application is waiting, whenever that changes, until it runs; a context manager.

    Args:
        runner: used to query the status.
        handle: the application.
        notes: notes about the submission, which were printed before: a reason among them is not repeated.
    """

    def __init__(self, runner: Runner, handle: str, notes: Collection[str] = ()) -> None:
        self._runner, self._handle, self._notes = runner, handle, notes
        self._stop = threading.Event()
        self._printed = ""
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Waiting:
        self._thread = threads.begin(self._run, name="waiting")
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        pause, begun = PATIENCE, time.monotonic()
        while not self._stop.wait(pause):
            try:
                pause = self._runner.pause_after(self._handle, time.monotonic() - begun, SHARE)
                current = self._runner.poll(self._handle)
            except UnreachableError:  # the command itself waits for an answer, too
                continue
            except Exception:  # the command itself reports the error
                return
            if current is None or current.state.name not in WAITS or self._stop.is_set():
                return
            status = status_of(current)
            message = reason(status)
            if message != self._printed:
                if self._printed or status.msg not in self._notes:
                    note(message)
                self._printed = message


def reason(status: AppStatus) -> str:
    """Returns a line that says why an application is waiting."""
    if status.msg.startswith("waiting "):
        return status.msg
    return f"waiting: {status.msg}" if status.msg else f"waiting: it is {status.state.name}"
