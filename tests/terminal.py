"""A command line on a terminal of its own: keys are sent to it, and its screen is read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from typing import Any

from program import COMMAND, environment

from torchx_cli.terminal.output import columns

PATIENCE = 60.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
"""The codes that begin and end the alternate screen."""


class Terminal:
    """A command on a pseudo-terminal; a context manager that ends it.

    Attributes:
        written: all that the command has written.
        process: its process.
    """

    def __init__(
        self, *words: str, width: int = 80, lines: int = 24, env: Mapping[str, str] | None = None
    ) -> None:
        self._master, self._slave = pty.openpty()
        self.written = ""
        self.resize(width, lines)
        self.settings = termios.tcgetattr(self._slave)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [*COMMAND, *words],
            stdin=self._slave, stdout=self._slave, stderr=self._slave,
            env=environment({"TERM": "xterm-256color", **(env or {})}), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, width: int, lines: int) -> None:
        """Changes the size of the window, which sends SIGWINCH."""
        self._columns, self._lines = width, lines
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))

    def send(self, keys: str) -> None:
        """Presses keys."""
        os.write(self._master, keys.encode())

    def read(self, timeout: float) -> bool:
        """Reads some output; returns False if there is none within a time."""
        ready, _, _ = select.select([self._master], [], [], timeout)
        if ready:
            self.written += os.read(self._master, 1 << 16).decode("utf-8", "replace")
        return bool(ready)

    @property
    def screen(self) -> str:
        """The last complete content of the screen, without codes."""
        return _CODES.sub("", self.frame)

    @property
    def frame(self) -> str:
        """The last complete content of the screen in its current size; an empty text if there is none yet."""
        for frame in reversed(self.written.split("\x1b[H")[1:]):
            text = frame.replace("\r", "")
            lines = _CODES.sub("", text).split("\n")
            if len(lines) == self._lines and all(columns(line) >= self._columns for line in lines):
                return text
        return ""

    def until(self, condition: Callable[[str], Any], what: str) -> str:
        """Waits until a condition on the screen is met, and returns the screen."""
        end = time.monotonic() + PATIENCE
        while not condition(self.screen):
            left = end - time.monotonic()
            assert left > 0, f"{what} not on the screen:\n{self.screen}\n{self.written[-1000:]!r}"
            self.read(min(left, 1.0))
        return self.screen

    def shows(self, text: str) -> str:
        """Waits until a text is on the screen, and returns the screen."""
        return self.until(lambda screen: text in screen, text)

    def end(self) -> int:
        """Waits for the end of the command; checks that the terminal is as before; returns the exit code."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end: {self.written[-1000:]!r}"
            self.read(0.05)
        while self.read(0):
            continue
        assert termios.tcgetattr(self._slave) == self.settings
        assert self.written.count(ENTER) == self.written.count(LEAVE)
        assert self.written.rfind(LEAVE) >= self.written.rfind(ENTER)
        return self.process.returncode

    def kill(self, number: signal.Signals) -> None:
        """Sends a signal to the command."""
        self.process.send_signal(number)
