"""Progress of a submission: drawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports
from torchx_cli.terminal.output import is_terminal, note

with lazy_imports:
    from torchx.scheduling import progress
    from torchx_cli.terminal import drawing

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.live import Live

    from torchx.scheduling.progress import Ongoing


class ProgressReporter:
    """Reports slow steps on stderr; a context manager that clears its output on exit.

    Args:
        allow_stop: called with whether Ctrl-C may stop the current step.
    """

    def __init__(self, allow_stop: Callable[[bool], None]) -> None:
        self._allow_stop = allow_stop
        self._terminal = is_terminal(sys.stderr)
        self._ongoing: Ongoing | None = None
        self._live: Live | None = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> ProgressReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._ongoing is not None:
            self.ended(self._ongoing)

    def __call__(self, line: str) -> None:
        """Prints a permanent line."""
        note(line)

    def began(self, ongoing: Ongoing) -> bool:
        """Lets Ctrl-C stop the step, and shows its progress on a terminal."""
        self._allow_stop(True)
        self._ongoing = ongoing
        if self._terminal:
            self._timer = threading.Timer(
                0.0 if ongoing.at_once else progress.PATIENCE, self._draw, [ongoing]
            )
            self._timer.daemon = True
            self._timer.start()
        return self._terminal

    def ended(self, ongoing: Ongoing) -> None:
        """Clears the displayed progress."""
        self._allow_stop(False)
        self._ongoing = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()
            self._timer = None
        if self._live is not None:
            with suppress(OSError):  # the terminal was closed
                self._live.stop()
            self._live = None

    def _draw(self, ongoing: Ongoing) -> None:
        self._live = drawing.progress_of(ongoing, sys.stderr)
        with suppress(OSError):  # the terminal was closed
            self._live.start()
