"""Waits for the engine's events of one application."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterable, Sequence

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.http import receive
from torchx.schedulers.docker.labels import APP_ID

_ID = re.compile(rb'"(?:id|ID)":\s*"([0-9a-f]{64})"')
EVENTS = ["create", "start", "die", "rename", "destroy", "oom", "pause", "unpause"]
PODMAN_EVENTS = ["died", "cleanup", "remove"]
"""Podman's other names for these events."""
TOGETHER = 0.005
"""Seconds to wait for further events after one, as they often come in groups."""


class Events:
    """A subscription to the events of an application, from its creation on.

    Args:
        engine: the engine.
        app_id: the application.

    Raises:
        NoEngineError: the engine does not answer.
    """

    def __init__(self, engine: Engine, app_id: str) -> None:
        filters = {"label": [f"{APP_ID}={app_id}"], "type": ["container"], "event": EVENTS + PODMAN_EVENTS}
        self._connection, self._rest = engine.stream("/events", {"filters": filters})
        self._connection.setblocking(False)
        self._named: set[str] = set()

    def close(self) -> None:
        """Ends the subscription."""
        self._connection.close()

    def fileno(self) -> int:
        """Returns the descriptor to poll."""
        return self._connection.fileno()

    def wait(self, timeout: float | None) -> bool:
        """Waits for an event, or for the timeout in seconds.

        Returns:
            False if the engine has closed the connection.
        """
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        if not poll.poll(None if timeout is None else max(timeout, 0.0) * 1000):
            return True
        time.sleep(TOGETHER)
        return self.clear()

    def clear(self) -> bool:
        """Reads the pending events; returns False if the engine has closed the connection."""
        data, closed = receive(self._connection, 1 << 16)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._named.update(match.decode() for match in _ID.findall(line))
        return not closed

    def wait_for_all(self, containers: Sequence[Container], timeout: float) -> bool:
        """Like :meth:`wait`, but until each running container has had an event, or another container has."""
        end = time.monotonic() + timeout
        live = {c.id for c in containers if c.live}
        others = {c.id for c in containers} - live
        while True:
            left = end - time.monotonic()
            if not self.wait(left):
                return False
            if left <= 0 or live <= self._named or self._named - live - others:
                return True

    @property
    def pending(self) -> bool:
        """Whether an event was read since the last call of :meth:`unchanged`."""
        return bool(self._named)

    def unchanged(self, containers: Iterable[Container]) -> list[Container]:
        """Returns the containers without an event since the last call."""
        named, self._named = self._named, set()
        return [c for c in containers if c.id not in named]
