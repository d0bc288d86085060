"""Ctrl-C while a command stays with an application."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from torchx_cli.terminal.output import shown

EXIT_INTERRUPTED = 130
"""128 + SIGINT."""


class Interrupts:
    """Ctrl-C during a run: the first cancels the application, the second kills it, a third leaves it.

    Before :meth:`arm` there is nothing to cancel: the first is kept for later, the second leaves.

    Attributes:
        count: how often it came.
        stopped: it has stopped what :meth:`may_stop` has let it stop.
    """

    def __init__(self) -> None:
        self.count = 0
        self._at_once = False
        self.stopped = False
        self._name = ""
        self._steps: list[Callable[[], None]] = []
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        # a shell starts background jobs with SIGINT ignored, and so it stays
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._on)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def may_stop(self, now: bool) -> None:
        """Tells whether already the first may stop what goes on now; one that came before does so here."""
        self._at_once = now
        if now and self.count and not self._steps:
            self.stopped = True
            raise KeyboardInterrupt

    def arm(self, name: str, cancel: Callable[[], None], kill: Callable[[], None]) -> None:
        """Tells what to end: from now on Ctrl-C acts, one that came before at once."""
        self._name, self._steps = name, [cancel, kill]
        if self.count:
            self._act(1)

    def _on(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._steps and self._at_once:
            self.stopped = True
            raise KeyboardInterrupt
        if not self._steps and self.count == 1:
            _say("cancelling as soon as it has started (again to leave)")
        elif self.count > max(1, len(self._steps)):
            raise KeyboardInterrupt
        else:
            self._act(self.count)

    def _act(self, step: int) -> None:
        words = (f"cancelling {self._name} (again to kill)", f"killing {self._name}")
        _say(words[min(step, 2) - 1])
        # in a thread: a signal handler must not wait, and the logs are streamed meanwhile
        threading.Thread(target=self._call, args=(self._steps[min(step, 2) - 1],), daemon=True).start()

    def _call(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # told to the person who pressed Ctrl-C: a thread has no caller
            from torchx_cli.terminal.masking import mask_text

            _say(mask_text(f"error: {error}"))


def _say(text: str) -> None:
    """Writes a line to stderr past Python's buffers, which a signal handler may have interrupted."""
    start = " " if sys.stderr.isatty() else ""  # after the ^C that the terminal shows
    try:
        os.write(sys.stderr.fileno(), f"{start}{shown(text)}\n".encode("utf-8", "backslashreplace"))
    except (OSError, ValueError):
        return
