"""The time for which an engine, a disk or a server has not answered."""

from __future__ import annotations

import time


class Outage:
    """An outage, to give up after a limit that is the same for the next one.

    Args:
        limit: seconds.
    """

    def __init__(self, limit: float) -> None:
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
