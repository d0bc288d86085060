"""Waits for the engine's events of one application."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from torchx.errors import StateError
from torchx.machine.polling import readable
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.http import receive
from torchx.schedulers.docker.labels import APP_ID

_ID = rb'"(?:id|ID)":\s*"([0-9a-f]{64})"'
EVENTS = ["create", "start", "die", "rename", "destroy", "oom", "pause", "unpause"]
PODMAN_EVENTS = ["died", "cleanup", "remove"]
"""Podman's other names for these events."""
RENEWED_AFTER = 0.5
"""Minimum seconds between two subscriptions."""
TOGETHER = 0.005
"""Seconds to wait for further events after one, as they often come in groups."""


class HasFileno(Protocol):
    """Has a descriptor to poll."""

    def fileno(self) -> int:
        """Returns the descriptor."""


class Events:
    """A subscription to the events of an application, from its creation on.

    Podman may end a subscription while it runs on; it is renewed then.

    Args:
        engine: the engine.
        app_id: the application.

    Raises:
        NoEngineError: the engine does not answer.
    """

    def __init__(self, engine: Engine, app_id: str) -> None:
        self._engine, self._app_id = engine, app_id
        self._named: set[str] = set()
        self._has_gap = False  # events may have been missed
        self._open()

    def _open(self) -> None:
        labels = [f"{APP_ID}={self._app_id}"]
        filters = {"label": labels, "type": ["container"], "event": EVENTS + PODMAN_EVENTS}
        self._connection, self._rest = self._engine.stream("/events", {"filters": filters})
        self._connection.setblocking(False)
        self._opened_at = time.monotonic()

    def _renew(self) -> bool:
        """Subscribes again after the connection was closed; returns False if the engine does not answer."""
        if time.monotonic() < self._opened_at + RENEWED_AFTER:
            time.sleep(RENEWED_AFTER)
        self._connection.close()
        try:
            self._open()
        except StateError:
            return False
        self._has_gap = True
        return True

    def close(self) -> None:
        """Ends the subscription."""
        self._connection.close()

    def fileno(self) -> int:
        """Returns the descriptor to poll."""
        return self._connection.fileno()

    def wait(self, timeout: float | None, others: Iterable[HasFileno] = ()) -> bool:
        """Waits for an event, or for the timeout in seconds.

        Args:
            timeout: the seconds.
            others: further descriptors to wait for.

        Returns:
            False if the engine has closed the connection, and does not answer.
        """
        if self.fileno() not in readable([self._connection, *others], timeout):
            return True
        time.sleep(TOGETHER)
        return self.clear()

    def clear(self) -> bool:
        """Reads the pending events; returns False if the engine has stopped.

        The descriptor to poll may be another one afterwards.
        """
        data, closed = receive(self._connection, 1 << 16)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            self._named.update(match.decode() for match in re.findall(_ID, line))
        return not closed or self._renew()

    def wait_for_all(self, containers: Sequence[Container], timeout: float) -> bool:
        """Like :meth:`wait`, but until each running container has had an event, or another container has."""
        end = time.monotonic() + timeout
        live = {c.id for c in containers if c.live}
        others = {c.id for c in containers} - live
        while True:
            left = end - time.monotonic()
            if not self.wait(left):
                return False
            if left <= 0 or self._has_gap or live <= self._named or self._named - live - others:
                return True

    @property
    def pending(self) -> bool:
        """Whether an event was read since the last call of :meth:`unchanged`."""
        return bool(self._named) or self._has_gap

    def unchanged(self, containers: Iterable[Container]) -> list[Container]:
        """Returns the containers without an event since the last call."""
        named, self._named = self._named, set()
        has_gap, self._has_gap = self._has_gap, False
        return [c for c in containers if c.id not in named and not has_gap]
