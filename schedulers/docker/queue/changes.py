"""Changes of applications in containers that wait for resources: their end, removal and recovery."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import end, pruning, ticket
from torchx.jobs.paths import Home, user_home
from torchx.jobs.view import load
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.schedulers.docker import cancel as docker_cancel
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.queue import records
from torchx.schedulers.docker.queue.records import Queued
from torchx.schedulers.docker.replay import has_begun
from torchx.schedulers.docker.supervisor_launch import spawn_supervisor
from torchx.scheduling.observation import INTERRUPTED
from torchx.scheduling.pace import deadline
from torchx.scheduling.query import Pruned

with lazy_imports:
    from torchx.queue import ends
    from torchx.queue import launch as waiting_launch

LOOK_AGAIN_AFTER = 0.2
"""Seconds between two checks of an application that waits."""


def reconcile(engine: Engine, app_id: str) -> bool:
    """Starts a missing keeper, or completes or undoes a start that was interrupted.

    Returns:
        False if the containers of the application have started, or it is unknown.

    Raises:
        StateError: its record is damaged, or the engine does not answer.
    """
    queued = records.find(engine.address, app_id)
    if queued is None:
        return False
    if queued.view.orphaned:
        _repair(engine, queued)
    elif queued.view.has_ended and queued.paths.is_waiting():
        ticket.clear(_home_of(queued), queued.paths)  # its keeper was killed before it removed the ticket
    return records.exists(queued.paths)


def _repair(engine: Engine, queued: Queued) -> None:
    paths = queued.paths
    if not queued.is_interrupted:
        waiting_launch.revive(_home_of(queued), paths)
        return
    with suppress(FileNotFoundError):
        held = locks.acquire(paths.lock)
        if held is None:
            return
        try:
            if not records.exists(paths) or load(paths).has_ended:
                return  # by another process
            app_id = queued.view.record.app_id
            if has_begun(containers_of(engine, app_id)):
                spawn_supervisor(paths, app_id, [held])
            else:
                docker_cancel.remove_containers(engine, app_id)
                ends.finish(_home_of(queued), paths, "FAILED", INTERRUPTED)
        finally:
            os.close(held)


def wait(engine: Engine, app_id: str, timeout: float | None) -> bool | None:
    """Waits until the containers of an application have started.

    Returns:
        None as soon as they have, or if the application is unknown; True if it has ended without a start;
        False if the timeout passed.
    """
    end_at = deadline(timeout)
    while (queued := records.find(engine.address, app_id)) is not None:
        if queued.view.has_ended and not queued.is_interrupted:
            return True
        if queued.view.orphaned:
            reconcile(engine, app_id)
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
    if not reconcile(engine, app_id):
        return False
    queued = records.find(engine.address, app_id)
    if queued is None:
        return False
    if not queued.view.has_ended:
        end.request(queued.paths, now=now)
    # a process that starts its containers looks for the request after it has removed the record
    return records.exists(queued.paths)


def delete(engine: Engine, app_id: str) -> None:
    """Cancels an application that waits, and removes its record.

    Raises:
        StateError: it cannot be cancelled or removed.
    """
    paths = records.paths_of(engine.address, app_id)
    if paths is None:
        return
    try:
        cancel(engine, app_id)
        wait(engine, app_id, None)
        with suppress(FileNotFoundError):
            pruning.remove_job(paths, Path(load(paths).record.log_dir))
    except StateError as error:
        if error.code not in ("damaged_record", "newer_record"):
            raise
        pruning.remove_unreadable(Home(user_home()).containers, paths)


def prune(engine: Engine, app_ids: Collection[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes applications that ended before their containers were created."""
    ended = [
        app_id
        for app_id in app_ids
        if (queued := records.find(engine.address, app_id)) is not None
        and queued.view.has_ended
        and not queued.is_interrupted
    ]
    with suppress(StateError):
        yield from pruning.prune(Home(user_home()).containers, ended, dryrun=dryrun)


def _home_of(queued: Queued) -> Home:
    return Home(queued.paths.folder.parent.parent)
