"""The engine's events of one application, as something to wait for."""

from __future__ import annotations

import select
import time

from torchx.schedulers.docker_engine import Engine, receive
from torchx.schedulers.docker_facts import APP_ID

OF_INTEREST = ["create", "start", "die", "rename", "destroy", "oom", "pause", "unpause"]
OF_PODMAN = ["died", "cleanup", "remove"]
"""What else Podman calls them."""
TOGETHER = 0.005
"""Seconds in which further events are waited for once one has come: they often come in flocks."""


class Events:
    """A subscription: what happens after it was made is not missed.

    Args:
        engine: where the application runs.
        app_id: the application.

    Raises:
        NoEngineError: no engine answers.
    """

    def __init__(self, engine: Engine, app_id: str) -> None:
        told = {"label": [f"{APP_ID}={app_id}"], "type": ["container"], "event": OF_INTEREST + OF_PODMAN}
        self._connection, _ = engine.stream("/events", {"filters": told})
        self._connection.setblocking(False)

    def close(self) -> None:
        """Ends the subscription."""
        self._connection.close()

    def fileno(self) -> int:
        """The descriptor, for those who wait for several things."""
        return self._connection.fileno()

    def wait(self, timeout: float | None) -> bool:
        """Waits until something has happened, at most so many seconds.

        Returns:
            False when the engine has broken off the subscription.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(None if timeout is None else max(timeout, 0.0) * 1000):
            return True
        time.sleep(TOGETHER)
        return self.clear()

    def clear(self) -> bool:
        """Takes what has come; False when the engine has broken off the subscription."""
        return not receive(self._connection, 1 << 16)[1]
