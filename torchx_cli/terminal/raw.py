"""The terminal of a program elsewhere: its size, and every key."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torchx.lazy import lazy_imports

with lazy_imports:
    import termios
    import tty


def terminal_size() -> tuple[int, int]:
    """Returns the rows and columns of the terminal."""
    window = os.get_terminal_size(sys.stdout.fileno())
    return window.lines, window.columns


@contextmanager
def with_raw_terminal(terminal: bool) -> Iterator[None]:
    """Switches the terminal to raw mode, so that every key, including Ctrl-C, is forwarded."""
    if not terminal:
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
