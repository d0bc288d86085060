"""Results of processes: exit codes, and the error files of torchelastic."""

from __future__ import annotations

from signal import Signals
from typing import TYPE_CHECKING

from torchx.machine import files

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_ERROR_FILE = 1 << 16
"""The number of characters read from an error file."""

KILLED = "by another process, a limit or the kernel, e.g. out of memory"
"""The reason to show for a process that a SIGKILL of unknown origin has ended."""

TIMED_OUT = 124
"""The exit code of commands about an application that has reached its time limit, and of a wait in vain."""


def result_of(exit_code: int | None, signal: str | None) -> int | None:
    """Returns the exit code of a process, or 128 + N if signal N ended it.

    >>> result_of(3, None), result_of(None, "SIGKILL"), result_of(None, None)
    (3, 137, None)
    """
    if signal is None:
        return exit_code
    try:
        return 128 + Signals[signal].value
    except KeyError:  # a real-time signal without a name of its own
        digits = "".join(c for c in signal if c.isdigit())
        if digits:
            return 128 + int(digits)
        return exit_code


def signal_of(exit_code: int | None) -> str | None:
    """Returns the signal N of an exit code 128 + N, or None.

    >>> signal_of(137), signal_of(3), signal_of(255)
    ('SIGKILL', None, None)
    """
    try:
        return Signals((exit_code or 0) - 128).name
    except ValueError:
        return None


def read_error_file(folder: Path) -> str:
    """Returns the text of a replica's ``error.json`` up to a limit; empty without one."""
    try:  # a replica may create anything here: reading a pipe would block, a link leads elsewhere
        descriptor = files.open_file(folder / "error.json", own=False)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST_ERROR_FILE)
    except OSError:
        return ""
