"""The caller's side of a program that an engine runs in a replica: its input, its output, its terminal."""

from __future__ import annotations

import os

from torchx.errors import StateError
from torchx.scheduling.streams import Streams

POLL_INTERVAL = 0.5
"""Seconds between checks of the terminal's size, and of a program that has closed its outputs."""

AT_A_TIME = 1 << 16
"""Bytes of input to read at a time."""

MOST_KEPT = 1 << 20
"""Bytes of input that are kept until it is known that the program runs."""


def not_running(app_id: str, role: str, replica: int) -> StateError:
    """Returns the error for a replica that has not started, or has ended."""
    return StateError(
        f"{role}/{replica} of {app_id} is not running",
        hint=f"its state: torchx status {app_id}",
        code="not_running",
        facts={"replica": f"{role}/{replica}"},
    )


class Caller:
    """The streams of the caller.

    Args:
        streams: the streams.

    Attributes:
        source: the descriptor of the input; None without input, and after its end.
        kept: the input read so far, to be sent to another program; None if it is no longer kept.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._size: tuple[int, int] | None = None
        self.source = streams.stdin
        self.kept: bytes | None = b""

    @property
    def has_ended(self) -> bool:
        """Whether all input was read."""
        return self.source is None and self._streams.stdin is not None

    def new_size(self) -> tuple[int, int] | None:
        """Returns the rows and columns of the terminal if they have changed since the last call."""
        if not self._streams.terminal or self._streams.size() == self._size:
            return None
        self._size = self._streams.size()
        return self._size

    def read(self) -> bytes:
        """Returns available input, or nothing at its end; input that cannot be read has ended."""
        assert self.source is not None
        try:
            data = os.read(self.source, AT_A_TIME)
        except OSError:
            data = b""
        if not data:
            self.source = None
        kept = self.kept
        if kept is not None:
            if len(kept) < MOST_KEPT:
                self.kept = kept + data
            else:
                self.kept = None
        return data

    def show(self, data: bytes, *, error: bool = False) -> None:
        """Writes output of the program."""
        if data:
            if error:
                output = self._streams.stderr
            else:
                output = self._streams.stdout
            output.write(data)
            output.flush()
