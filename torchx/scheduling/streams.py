"""A program that is run in a replica from outside: what goes in, and what takes what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Output(Protocol):
    """Takes what a program prints, such as ``sys.stdout.buffer``."""

    def write(self, data: bytes, /) -> object:
        """Takes some bytes."""
        ...

    def flush(self) -> object:
        """Shows them."""
        ...


def _no_size() -> tuple[int, int]:
    return 24, 80


@dataclass(frozen=True)
class Streams:
    """What a program in a replica reads and prints to.

    Attributes:
        stdout: takes what it prints.
        stderr: takes what it prints there; on a terminal all comes to stdout.
        stdin: file descriptor of what it reads; None for nothing.
        terminal: whether it gets a terminal.
        size: the rows and columns of that, asked again and again.
    """

    stdout: Output
    stderr: Output
    stdin: int | None = None
    terminal: bool = False
    size: Callable[[], tuple[int, int]] = _no_size
