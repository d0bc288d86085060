"""How the end of a process is told: as one number, and by the error file that torchelastic has it write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx import files

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_ERROR_FILE = 1 << 16
"""Characters of an error file that are read."""


def result_of(exit_code: int | None, signal: str | None) -> int | None:
    """Returns how something ended as one number: its exit code, or 128 + N when signal N ended it.

    >>> result_of(3, None), result_of(None, "SIGKILL"), result_of(None, None)
    (3, 137, None)
    """
    if signal is None:
        return exit_code
    from signal import Signals

    try:
        return 128 + Signals[signal].value
    except KeyError:  # a real-time signal without a name of its own
        digits = "".join(c for c in signal if c.isdigit())
        return 128 + int(digits) if digits else exit_code


def read_error_file(folder: Path) -> str:
    """Returns the text of a replica's ``error.json``, as far as it is read; empty when there is none."""
    try:  # a replica can make anything of it: a pipe would hold up who reads it, a link lead elsewhere
        descriptor = files.open_file(folder / "error.json", own=False)
        with open(descriptor, encoding="utf-8", errors="replace") as file:
            return file.read(LONGEST_ERROR_FILE)
    except OSError:
        return ""
