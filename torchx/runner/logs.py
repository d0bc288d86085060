"""Merges the logs of several replicas, for schedulers that return one replica at a time."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from torchx.errors import TorchxError, UsageError
from torchx.machine import threads
from torchx.machine.readers import Readers
from torchx.scheduling.base import AnyScheduler, Scheduler
from torchx.scheduling.logs import LogChunk, LogQuery, Stream
from torchx.specs.app import Role
from torchx.specs.status import Member

RECONCILE_EVERY = 2.0
"""Seconds after which an application that is followed is brought to its due state once more."""
_CROWD = 1000
"""The number of buffered chunks before the readers of the replicas block."""


def check_regex(regex: str) -> None:
    """Rejects an invalid pattern before reading anything.

    Raises:
        UsageError: it is not a regular expression.
    """
    try:
        re.compile(regex)
    except re.error as error:
        raise UsageError(f"`{regex}` is not a regular expression: {error}") from error


def wanted_replicas(roles: Iterable[Role], query: LogQuery) -> list[Member]:
    """Returns the replicas of a query, in the order of the roles.

    >>> roles = [Role("a", "img", num_replicas=2), Role("b", "img")]
    >>> wanted_replicas(roles, LogQuery({"a": frozenset({1})})), len(wanted_replicas(roles, LogQuery()))
    ([('a', 1)], 3)
    """
    members = ((role.name, k) for role in roles for k in range(role.num_replicas))
    return [member for member in members if query.selects(*member)]


def merged(
    scheduler: AnyScheduler, app_id: str, roles: Iterable[Role], query: LogQuery
) -> Iterator[LogChunk]:
    """Yields the lines of a query, one chunk for each line.

    Replicas follow one another; with ``follow``, lines are interleaved as they are written.
    """
    replicas = wanted_replicas(roles, query)
    if query.follow and len(replicas) > 1:
        chunks = _together(scheduler, app_id, replicas, replace(query, tail=None))
    else:
        chunks = (chunk for role, k in replicas for chunk in _one(scheduler, app_id, role, k, query))
    if query.follow and type(scheduler).reconcile is not Scheduler.reconcile:
        chunks = _reconciling(scheduler, app_id, chunks)
    if query.tail is None or query.follow:
        return chunks
    return iter(deque(chunks, maxlen=query.tail))


def _reconciling(scheduler: AnyScheduler, app_id: str, chunks: Iterator[LogChunk]) -> Iterator[LogChunk]:
    """Yields chunks, and calls ``reconcile`` of the scheduler in the background."""
    stop = threading.Event()

    def reconcile() -> None:
        while not stop.wait(RECONCILE_EVERY):
            with suppress(TorchxError, OSError):  # the reader of the log reports the error
                scheduler.reconcile(app_id)

    threads.begin(reconcile, name=f"reconcile {app_id}")
    try:
        yield from chunks
    finally:
        stop.set()


def _one(scheduler: AnyScheduler, app_id: str, role: str, k: int, query: LogQuery) -> Iterator[LogChunk]:
    lines = scheduler.log_iter(
        app_id,
        role,
        k,
        query.regex,
        query.since,
        query.until,
        query.follow,
        None if query.stream is Stream.COMBINED else query.stream,
    )
    for line in lines:
        yield LogChunk(role, k, 1, query.stream, 0.0, line.encode("utf-8", "surrogateescape"))


def _together(
    scheduler: AnyScheduler, app_id: str, replicas: list[Member], query: LogQuery
) -> Iterator[LogChunk]:
    """Reads all replicas concurrently, one thread each, until all have ended."""
    with Readers[LogChunk](_CROWD) as readers:
        for role, k in replicas:
            readers.add(_one(scheduler, app_id, role, k, query), f"log {role}/{k}")
        while readers.reading:
            if (chunk := readers.get()) is not None:
                yield chunk
