"""Connections to ports of the replicas of a local job."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx.machine.pipe_port import connect_here
from torchx.machine.port_names import resolve_port
from torchx.machine.relay import unreachable
from torchx.schedulers.local.exec import process_of
from torchx.scheduling.checks import unknown_application

if TYPE_CHECKING:
    from torchx.schedulers.local.status import LocalJobs


def port_connector(
    jobs: LocalJobs, app_id: str, role: str, replica: int, port: str
) -> Callable[[], socket.socket]:
    """Returns a function that connects to a port of a replica.

    Raises:
        StateError: the replica is not running, or has no such port.
    """

    def number() -> int:
        view = jobs.find(app_id)
        if view is None:
            raise unknown_application(jobs.scheduler, app_id)
        _, env = process_of(view, role, replica)
        texts = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        return resolve_port(port, texts, f"{role}/{replica}")

    def connected() -> socket.socket:
        current = number()
        try:
            return connect_here(current)
        except OSError as error:
            raise unreachable(current, f"{role}/{replica}", error) from error

    number()
    return connected
