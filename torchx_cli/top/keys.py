"""Read keys from a terminal, which is restored whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from types import FrameType
from typing import Any

from torchx.machine.polling import readable

SEQUENCES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down", b"\x1b[H": "home", b"\x1b[1~": "home",
    b"g": "home", b"\x1b[F": "end", b"\x1b[4~": "end", b"G": "end", b"\r": "enter", b"\n": "enter",
    b"\x1b": "back", b"\x7f": "back", b"l": "l", b"c": "c", b"q": "q", b"y": "y", b"n": "n", b"\x04": "q",
}  # fmt: skip
"""The bytes of a key -> its name."""

_REST_OF_SEQUENCE = 0.05
"""Seconds to wait for the rest of an escape sequence."""


class Keyboard:
    """The keyboard of a terminal without echo and line editing; a context manager.

    TERM and HUP raise ``SystemExit``, so that everything is restored. A changed window size, Ctrl-Z, and
    :meth:`wake` from another thread end :meth:`read`.

    Attributes:
        suspended: Ctrl-Z was pressed.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._woken, self._wake = -1, -1
        self.suspended = False

    def __enter__(self) -> Keyboard:
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._before = termios.tcgetattr(self._input)
        if threading.current_thread() is threading.main_thread():
            for number, handler in (
                (signal.SIGTERM, _end),
                (signal.SIGHUP, _end),
                (signal.SIGTSTP, self._suspend),
                (signal.SIGWINCH, lambda number, frame: self.wake()),
            ):
                self._handlers[number] = signal.signal(number, handler)
        tty.setcbreak(self._input)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        with contextlib.suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        os.close(self._woken)
        os.close(self._wake)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self.suspended = True
        self.wake()

    def wake(self) -> None:
        """Ends a running or the next :meth:`read`; may be called by signal handlers and threads."""
        try:
            os.write(self._wake, b"\0")
        except OSError:  # full, or closed at the end
            return

    def read(self, timeout: float) -> str:
        """Returns the name of the next key; an empty text after a time, or if it was woken; q at the end."""
        ready = readable([self._input, self._woken], timeout)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._input not in ready:
            return ""
        try:
            data = os.read(self._input, 1)
        except OSError:  # the terminal is closed
            data = b""
        if not data:
            return "q"
        while data == b"\x1b" or (data.startswith(b"\x1b") and data not in SEQUENCES):
            if not readable([self._input], _REST_OF_SEQUENCE) or len(data) > 8:
                break
            data += os.read(self._input, 1)
        return SEQUENCES.get(data, "other")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
