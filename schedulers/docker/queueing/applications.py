"""The applications of an engine: those that wait for their containers, and those that have them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports
from torchx.schedulers.docker import status as docker_status
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.queueing import records
from torchx.schedulers.docker.queueing import status as queue_status
from torchx.schedulers.shared.listing import newest_first
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse

with lazy_imports:
    from torchx.schedulers.docker import cancel as docker_cancel
    from torchx.schedulers.docker import logs as docker_logs
    from torchx.schedulers.docker import prune as docker_prune
    from torchx.schedulers.docker import supervisor_launch
    from torchx.schedulers.docker import wait as docker_wait
    from torchx.schedulers.docker.queueing import changes

if TYPE_CHECKING:
    from torchx.scheduling.logs import LogChunk, LogQuery
    from torchx.scheduling.query import Pruned


def describe(engine: Engine, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application with its roles, or None if it is unknown."""
    return queue_status.describe(engine.address, app_id) or docker_status.describe_app(engine, app_id)


def glance(engine: Engine, app_id: str) -> DescribeAppResponse | None:
    """Returns the status of an application without its roles, or None if it is unknown."""
    return queue_status.glance(engine.address, app_id) or docker_status.glance(engine, app_id)


def list_apps(engine: Engine) -> list[ListAppResponse]:
    """Returns all applications of an engine, newest first."""
    # before the containers: one that starts meanwhile is in both, not in none
    waiting = {row.app_id: row for row in queue_status.rows(engine.address)}
    rows = [row for row in docker_status.list_apps(engine) if row.app_id not in waiting]
    return newest_first([*rows, *waiting.values()]) if waiting else rows


def exists(engine: Engine, app_id: str) -> bool:
    """Returns True if an application waits, or has containers."""
    return records.paths_of(engine.address, app_id) is not None or docker_status.exists(engine, app_id)


def may_wait(engine: Engine, app_id: str) -> bool:
    """Returns True if an application is in the queue of this machine."""
    paths = records.paths_of(engine.address, app_id)
    return paths is not None and paths.is_waiting()


def reconcile(engine: Engine, app_id: str) -> None:
    """Starts a missing keeper or supervisor of an application on this machine."""
    if not changes.reconcile(engine, app_id):
        supervisor_launch.reconcile(engine, app_id)


def wait(engine: Engine, app_id: str, timeout: float | None) -> bool:
    """Waits for an application to end, or for the timeout; returns True if it has ended.

    Raises:
        StateError: the engine was stopped meanwhile.
    """
    end = None if timeout is None else time.monotonic() + timeout
    ended = changes.wait(engine, app_id, timeout)
    if ended is not None:
        return ended
    return docker_wait.wait(engine, app_id, None if end is None else max(0.0, end - time.monotonic()))


def cancel(engine: Engine, app_id: str, *, now: bool = False) -> None:
    """Cancels an application.

    Args:
        engine: the engine.
        app_id: the application.
        now: kill immediately.
    """
    if not changes.cancel(engine, app_id, now=now):
        docker_cancel.cancel(engine, app_id, now=now)


def delete(engine: Engine, app_id: str) -> None:
    """Cancels an application, and removes it with its records.

    Raises:
        StateError: it belongs to another user, or cannot be removed.
    """
    changes.delete(engine, app_id)
    docker_cancel.delete(engine, app_id)


def prune(engine: Engine, app_ids: Iterable[str], *, dryrun: bool = False) -> Iterator[Pruned]:
    """Removes ended applications, then images of workspaces that no application uses."""
    names = list(app_ids)
    yield from changes.prune(engine, names, dryrun=dryrun)
    yield from docker_prune.prune(engine, names, records.images(engine.address), dryrun=dryrun)


def read_logs(engine: Engine, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the logs of all replicas in order of time; those of a waiting application follow its start.

    Raises:
        StateError: the engine does not know the application, or it cannot be read.
    """
    if records.paths_of(engine.address, app_id) is None:
        return docker_logs.read_logs(engine, app_id, query)
    return _when_started(engine, app_id, query)


def _when_started(engine: Engine, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    if query.follow and query.until is None and changes.wait(engine, app_id, None) is None:
        yield from docker_logs.read_logs(engine, app_id, query)
