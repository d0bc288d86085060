"""Report why an application is waiting."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import TYPE_CHECKING

from torchx_cli.terminal.output import note

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus

PATIENCE = 0.5
"""Seconds before the first query and message."""

BACKOFF = 1.3
"""Factor by which the pause between two queries grows."""

MAX_PAUSE, MAX_PAUSE_POLLING = 2.0, 10.0
"""Maximum seconds between two queries; longer for engines that must be polled."""

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
        self._thread = threading.Thread(target=self._run, name="waiting", daemon=True)

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        pause = PATIENCE
        while not self._stop.wait(pause):
            try:
                longest = MAX_PAUSE if self._runner.wakes(self._handle) else MAX_PAUSE_POLLING
                status = self._runner.status(self._handle)
            except Exception:  # the command itself reports the error
                return
            if status is None or status.state.name not in WAITS or self._stop.is_set():
                return
            message = reason(status)
            pause = min(pause * BACKOFF, longest) if message == self._printed else PATIENCE
            if message != self._printed:
                if self._printed or status.msg not in self._notes:
                    note(message)
                self._printed = message


def reason(status: AppStatus) -> str:
    """Returns a line that says why an application is waiting."""
    if status.msg.startswith("waiting "):
        return status.msg
    return f"waiting: {status.msg}" if status.msg else f"waiting: it is {status.state.name}"
