"""What a submission waits for, as it goes on: drawn in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from torchx_cli.output import fit, is_terminal, paint, width_of

PLAIN_EVERY = 2.0
"""Seconds between two lines about the same thing, where they stay."""

DRAW_EVERY = 0.1
"""Seconds between two drawings."""


class Progress:
    """Shows lines about what takes long; a context manager that leaves none of them on a terminal.

    A line is about what stands before its first comma; what stands behind it changes.
    """

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stderr)
        self._subject = ""
        self._told = 0.0
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.erase()

    def __call__(self, line: str) -> None:
        """Shows a line, unless one about the same was shown just now."""
        subject, now = line.partition(",")[0], time.monotonic()
        if subject == self._subject and now - self._told < (DRAW_EVERY if self._terminal else PLAIN_EVERY):
            return
        self._subject, self._told = subject, now
        if self._terminal:
            shown = paint(fit(line, width_of(sys.stderr)), "dim", sys.stderr)
            print(f"\r\x1b[2K{shown}", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            print(line, file=sys.stderr, flush=True)

    def erase(self) -> None:
        """Takes away what was drawn."""
        if self._drawn:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._drawn = False
