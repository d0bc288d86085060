"""Progress of a submission: lines updated in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from torchx_cli.terminal.output import bar_of, is_terminal, note, paint
from torchx_cli.terminal.times import duration
from torchx_cli.terminal.watch import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx.scheduling.progress import Ongoing, Part, Progress

DRAW_EVERY = 0.1
"""Seconds between two updates."""

MAX_PARTS = 6
"""Maximum number of parts shown."""


class ProgressReporter:
    """Reports slow steps on stderr; a context manager that clears its output on exit.

    Args:
        allow_stop: called with whether Ctrl-C may stop the current step.
    """

    def __init__(self, allow_stop: Callable[[bool], None]) -> None:
        self._allow_stop = allow_stop
        self._terminal = is_terminal(sys.stderr)
        self._ongoing: Ongoing | None = None
        self._screen: Screen | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ProgressReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self._end.clear()
            self._thread = threading.Thread(target=self._draw, args=(ongoing,), daemon=True)
            self._thread.start()
        return self._terminal

    def ended(self, ongoing: Ongoing) -> None:
        """Clears the displayed progress."""
        self._allow_stop(False)
        self._ongoing = None
        if self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None
        if self._screen is not None:
            self._screen.show([], final=True)
            self._screen = None

    def _draw(self, ongoing: Ongoing) -> None:
        from torchx.scheduling.progress import PATIENCE

        pause = 0.0 if ongoing.at_once else PATIENCE
        while not self._end.wait(pause):
            pause = DRAW_EVERY
            self._screen = self._screen or Screen(sys.stderr)
            try:
                self._screen.show(lines_of(ongoing.now, ongoing.seconds))
            except OSError:  # the terminal was closed
                return


def lines_of(now: Progress, seconds: float) -> list[str]:
    """Returns the lines that show the progress."""
    lines = [f"{now.what}, {duration(int(seconds)).replace('.0 s', ' s')}"]
    where = ", ".join(part for part in (now.detail, now.bytes) if part)
    lines += [f"  {where}"] if where else []
    moving = [part for part in now.parts if part.name and part.status and part.total]
    lines += [paint(_part(part), "dim", sys.stderr) for part in moving[:MAX_PARTS]]
    bar = bar_of(sys.stderr)
    return lines + [paint(f"  {bar} {line.expandtabs()}", "dim", sys.stderr) for line in now.last]


def _part(part: Part) -> str:
    return f"  {part.name[:12]}  {part.status:<11}  {part.bytes:>20}"
