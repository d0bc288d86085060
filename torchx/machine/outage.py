"""The time for which an engine, a disk or a server has not answered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from torchx.errors import UnreachableError

MAX_OUTAGE = 60.0
"""Seconds without a response before a command that waits gives up: an engine may be restarting."""


class Outage:
    """An outage, to give up after a limit that is the same for the next one.

    Args:
        limit: seconds.
    """

    def __init__(self, limit: float = MAX_OUTAGE) -> None:
        self._limit = limit
        self._since: float | None = None

    def is_too_long(self) -> bool:
        """Handles a failure; returns True if there was none but failures for longer than the limit."""
        now, since = time.monotonic(), self._since  # another thread may have an answer meanwhile
        if since is None:
            self._since = since = now
        return now - since > self._limit

    def over(self) -> None:
        """Handles an answer."""
        self._since = None

    @contextmanager
    def bridged(self) -> Iterator[None]:
        """Suppresses the error of an engine that does not answer; the next query may succeed.

        Raises:
            UnreachableError: the outage is too long.
        """
        try:
            yield
        except UnreachableError:
            if self.is_too_long():
                raise
        else:
            self.over()
