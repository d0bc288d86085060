"""Waits until an application in containers has ended."""

from __future__ import annotations

import time
from contextlib import closing

from torchx.errors import UnreachableError
from torchx.schedulers.docker.containers import damage_of
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.reconcile import reconcile
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.docker.status import describe
from torchx.scheduling.pace import deadline, sharing
from torchx.specs.status import is_terminal

POLL_INTERVAL = 10.0
"""Seconds between checks of the containers without an event."""


def wait(engine: Engine, app_id: str, timeout: float | None) -> bool:
    """Waits for an application to end, or for the timeout; returns True if it has ended.

    Raises:
        UnreachableError: the engine was stopped meanwhile.
    """
    end = deadline(timeout)
    with closing(Events(engine, app_id)) as events:
        with sharing(time.monotonic()):  # with other threads that begin to wait
            containers = containers_of(engine, app_id)
        while True:
            if not containers or is_terminal(describe(containers, engine.clock.now()).state):
                return True
            if damage_of(containers) and not is_under_way(containers):
                return True
            reconcile(engine, containers)
            left = min(end - time.monotonic(), POLL_INTERVAL)
            if left <= 0:
                return False
            if not events.wait_for_all(containers, left):
                raise UnreachableError(
                    f"the Docker engine at {engine.address} was stopped while {app_id} ran",
                    hint="once it runs again: torchx status @last",
                )
            containers = containers_of(engine, app_id, events.unchanged(containers))
