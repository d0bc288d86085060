"""Telling why an application waits, for as long as it does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from torchx_cli.terminal.output import note

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus

PATIENCE = 0.5
"""Seconds of waiting before a person is told what for; the first look at an application comes after these."""

SLOWER = 1.3
"""The longer it waits, the longer is the pause between two looks."""

LONGEST, LONGEST_ELSEWHERE = 2.0, 10.0
"""Seconds between two looks at most; more at an engine that cannot wake us: it has others to serve."""

WAITS = ("SUBMITTED", "PENDING")


class Waiting:
    """Tells on stderr what an application waits for, whenever that changes, until it runs; a context manager.

    Args:
        runner: asks how it fares.
        handle: the application.
    """

    def __init__(self, runner: Runner, handle: str) -> None:
        self._runner, self._handle = runner, handle
        self._stop = threading.Event()
        self._told = ""
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
                longest = LONGEST if self._runner.wakes(self._handle) else LONGEST_ELSEWHERE
                status = self._runner.status(self._handle)
            except Exception:  # a thread has no caller: the command itself finds out what is wrong
                return
            if status is None or status.state.name not in WAITS or self._stop.is_set():
                return
            told = reason(status)
            pause = min(pause * SLOWER, longest) if told == self._told else PATIENCE
            if told != self._told:
                self._told = told
                note(told)


def reason(status: AppStatus) -> str:
    """Returns the line that tells what an application waits for."""
    return f"waiting: {status.msg}" if status.msg else f"waiting: it is {status.state.name}"
