"""Applications that were submitted here, and whose containers have not started: they wait, or just start."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from torchx.errors import StateError
from torchx.jobs import end, ticket
from torchx.jobs.record import UNREADABLE
from torchx.jobs.view import JobView, load
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.schedulers.docker import cancel as docker_cancel
from torchx.schedulers.docker import folder
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.folder import Submitted
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.replay import has_begun, replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.supervisor_launch import spawn_supervisor
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.observation import CANCELLING, GONE, INTERRUPTED, STARTING, Phase, Whole, describe
from torchx.scheduling.pace import deadline
from torchx.specs.status import AppState, Reason

with lazy_imports:
    from torchx.queue import ends
    from torchx.queue import launch as waiting_launch
    from torchx.schedulers.shared import job_status

LOOK_AGAIN_AFTER = 0.2
"""Seconds between two checks of an application that waits."""


# --- queries -------------------------------------------------------------------------------------


def describe_app(submitted: Submitted) -> DescribeAppResponse:
    """Returns the status of an application by its folder alone, with its roles.

    Raises:
        StateError: its record is damaged.
    """
    return job_status.with_application(glance(submitted), submitted.view, submitted.paths)


def glance(submitted: Submitted) -> DescribeAppResponse:
    """Returns the status of an application by its folder alone, without its roles."""
    view, paths = submitted.view, submitted.paths
    seen = replace(job_status.observe(view, paths), restarts=-1)
    if view.has_ended or submitted.waits:
        return replace(describe(seen), needs_reconcile=view.orphaned)
    if not submitted.is_unstarted:
        return describe(replace(seen, whole=Whole(Phase.UNKNOWN, reason=Reason(GONE))))
    if submitted.is_interrupted:
        msg = INTERRUPTED
    elif paths.cancel.exists():
        msg = CANCELLING
    else:
        msg = STARTING
    seen = replace(seen, whole=Whole(Phase.WAITING, reason=Reason(msg, view.cause)))
    return replace(describe(seen), needs_reconcile=view.orphaned)


def row(app_id: str, submitted: Submitted | StateError) -> ListAppResponse:
    """Returns the row of an application by its folder alone, or with the reason why that cannot be read."""
    if isinstance(submitted, StateError):
        return ListAppResponse(app_id, AppState.UNKNOWN, msg=submitted.message)
    return row_of(glance(submitted))


def not_started(address: Address, app_id: str) -> StateError | None:
    """Returns an error for a command that needs containers, if those of an application have not started."""
    submitted = folder.find(address, app_id)
    if submitted is None or not submitted.is_unstarted:
        return None
    status = glance(submitted)
    hint = f"wait for its start: torchx wait --for running {app_id}"
    ended = status.ended_at is not None
    return StateError(
        f"{app_id} has not started: {status.msg or status.state.name}", hint=None if ended else hint
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


# --- changes -------------------------------------------------------------------------------------


def reconcile(engine: Engine, submitted: Submitted) -> None:
    """Starts a missing keeper, or completes or undoes a start that was interrupted.

    Raises:
        StateError: the engine does not answer.
    """
    paths = submitted.paths
    if submitted.view.has_ended:
        if paths.is_waiting():  # its keeper was killed before it removed the ticket
            ticket.clear(submitted.home, paths)
        return
    if not submitted.view.orphaned:
        return
    if not submitted.is_interrupted:
        waiting_launch.revive(submitted.home, paths)
        return
    with suppress(FileNotFoundError):
        held = locks.acquire(paths.lock)
        if held is None:
            return
        try:
            view = load(paths)
            if view.has_ended or not submitted.is_unstarted:
                return
            app_id = view.record.app_id
            if _can_continue(view, containers_of(engine, app_id)):
                spawn_supervisor(paths, app_id, [held])
            else:
                docker_cancel.remove_containers(engine, app_id)
                ends.finish(submitted.home, paths, "FAILED", INTERRUPTED)
        finally:
            os.close(held)


def _can_continue(view: JobView, containers: Sequence[Container]) -> bool:
    """Returns True if a supervisor can continue a start that was interrupted.

    All containers exist then. Those from the queue have to run too: their resources are no longer reserved.
    """
    if view.supervisor is not None:
        return has_begun(containers)
    if not containers or damage_of(containers):
        return False
    return all(replay(job_of(containers), containers).replicas)


def wait(engine: Engine, app_id: str, timeout: float | None) -> bool | None:
    """Waits until the containers of an application have started.

    Returns:
        None as soon as they have, or if the application is unknown; True if it has ended without a start;
        False if the timeout passed.
    """
    end_at = deadline(timeout)
    while (submitted := folder.find(engine.address, app_id)) is not None and submitted.is_unstarted:
        if submitted.view.has_ended:
            return True
        reconcile(engine, submitted)
        left = end_at - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(LOOK_AGAIN_AFTER, left))
    return None


def cancel(engine: Engine, app_id: str, *, now: bool = False) -> bool:
    """Cancels an application that waits.

    Returns:
        False if its containers have started, or it is unknown.

    Raises:
        StateError: its record is damaged, or its end cannot be recorded.
    """
    submitted = folder.find(engine.address, app_id)
    if submitted is None or not submitted.is_unstarted:
        return False
    reconcile(engine, submitted)
    if not submitted.view.has_ended:
        end.request(submitted.paths, now=now)
    # the process that starts its containers looks for the request after it has recorded their start
    return submitted.is_unstarted


def end_waiting(engine: Engine, app_id: str) -> None:
    """Cancels an application that waits, and waits for its end; does nothing if its record cannot be read.

    Raises:
        StateError: its end cannot be recorded.
    """
    try:
        if cancel(engine, app_id):
            wait(engine, app_id, None)
    except StateError as error:
        if error.code not in UNREADABLE:
            raise
