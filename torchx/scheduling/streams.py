"""Input and output of a program that `torchx exec` runs in a replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Output(Protocol):
    """A receiver of a program's output, such as ``sys.stdout.buffer``."""

    def write(self, data: bytes, /) -> object:
        """Writes some bytes."""

    def flush(self) -> object:
        """Flushes them."""


class Input(Protocol):
    """A source of bytes, such as an archive."""

    def read(self, size: int, /) -> bytes:
        """Returns up to so many bytes; none at the end."""

    def close(self) -> None:
        """Ends it, also before its end."""


def _no_size() -> tuple[int, int]:
    return 24, 80


@dataclass(frozen=True)
class Streams:
    """Standard streams of a program in a replica.

    Attributes:
        stdout: receives its output.
        stderr: receives its error output; with a terminal, everything is written to stdout.
        stdin: file descriptor of its input; None for no input.
        terminal: whether it runs in a terminal.
        size: returns the rows and columns of the terminal; called repeatedly.
    """

    stdout: Output
    stderr: Output
    stdin: int | None = None
    terminal: bool = False
    size: Callable[[], tuple[int, int]] = _no_size
