"""The status of applications in containers that wait for resources."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.queue import records
from torchx.schedulers.docker.queue.records import Queued
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.observation import (
    CANCELLING,
    INTERRUPTED,
    STARTING,
    Phase,
    Whole,
    describe,
)
from torchx.specs.status import AppState, Reason

with lazy_imports:
    from torchx.schedulers.shared import job_status


def describe_app(address: Address, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application whose containers have not started, with its roles, or None.

    Raises:
        StateError: its record is damaged.
    """
    queued = records.find(address, app_id)
    if queued is None:
        return None
    return job_status.with_application(status_of(queued), queued.view, queued.paths)


def glance(address: Address, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application whose containers have not started, without its roles, or None.

    Raises:
        StateError: its record is damaged.
    """
    queued = records.find(address, app_id)
    if queued is None:
        return None
    return status_of(queued)


def rows(address: Address) -> Iterator[ListAppResponse]:
    """Yields the applications of an engine whose containers have not started."""
    for app_id, queued in records.find_all(address):
        if isinstance(queued, StateError):
            yield ListAppResponse(app_id, AppState.UNKNOWN, msg=queued.message)
        else:
            yield row_of(status_of(queued))


def not_started(address: Address, app_id: str) -> StateError | None:
    """Returns an error for a command that needs containers, if those of an application have not started."""
    found = glance(address, app_id)
    if found is None:
        return None
    hint = f"wait for its start: torchx wait --for running {app_id}"
    ended = found.ended_at is not None
    return StateError(
        f"{app_id} has not started: {found.msg or found.state.name}", hint=None if ended else hint
    )


def readable(engine: Engine, app_id: str) -> list[Container]:
    """Returns the containers of an application.

    Raises:
        StateError: the application is unknown, waits, or cannot be read.
    """
    containers = containers_of(engine, app_id)
    if not containers:
        if (waits := not_started(engine.address, app_id)) is not None:
            raise waits
        raise unknown_application("local_docker", app_id)
    damage = damage_of(containers)
    if damage:
        raise StateError(
            f"the replicas of {app_id} cannot be read: {damage}",
            hint=f"Docker still has its container: docker logs {containers[0].id[:12]}",
        )
    return containers


def status_of(queued: Queued) -> DescribeAppResponse:
    """Returns the status of an application whose containers have not started."""
    view = queued.view
    seen = replace(job_status.observe(view, queued.paths), restarts=-1)
    msg = ""
    if queued.is_interrupted:
        msg = INTERRUPTED
    elif view.supervisor is not None and not view.has_ended:
        msg = CANCELLING if queued.paths.cancel.exists() else STARTING
    if msg:
        seen = replace(seen, whole=Whole(Phase.WAITING, reason=Reason(msg, view.cause)))
    return replace(describe(seen), needs_reconcile=view.orphaned)
