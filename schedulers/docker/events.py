"""The engine's events of one application, as something to wait for."""

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
        self._connection, self._rest = engine.stream("/events", {"filters": told})
        self._connection.setblocking(False)
        self._named: set[str] = set()

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
        data, closed = receive(self._connection, 1 << 16)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._named.update(found.decode() for found in _ID.findall(line))
        return not closed

    def wait_for_all(self, containers: Sequence[Container], timeout: float) -> bool:
        """As :meth:`wait`, until something has happened to all of some containers that run, or to another."""
        end = time.monotonic() + timeout
        live = {c.id for c in containers if c.live}
        others = {c.id for c in containers} - live
        while True:
            left = end - time.monotonic()
            if not self.wait(left):
                return False
            if left <= 0 or live <= self._named or self._named - live - others:
                return True

    def unheard(self, containers: Iterable[Container]) -> list[Container]:
        """Returns those of some containers that no event has named since this was asked for last."""
        named, self._named = self._named, set()
        return [c for c in containers if c.id not in named]
