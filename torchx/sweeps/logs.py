"""The logs of a sweep: those of its runs, where the number of the run is before the role."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.readers import Readers
from torchx.runner.logs import merged
from torchx.scheduling.base import AnyScheduler, EngineOf, LogChunks
from torchx.scheduling.logs import LogChunk, LogQuery
from torchx.scheduling.pace import pause_after, sharing
from torchx.scheduling.protocols import UnavailableError
from torchx.sweeps import view
from torchx.sweeps.paths import paths_of

with lazy_imports:
    from torchx.sweeps import native

if TYPE_CHECKING:
    from torchx.sweeps.records import Run
    from torchx.sweeps.view import Sweep


PAUSE = 0.2
"""Seconds between two searches for started runs, while a log is followed."""

MOST_CHUNKS = 64
"""Maximum number of chunks that wait to be printed."""


def read_logs(engine_of: EngineOf, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Yields the logs of the selected runs in the order of their numbers; followed ones as they are written.

    Args:
        engine_of: returns the scheduler of a name.
        app_id: the sweep.
        query: selects the lines; its roles are the numbers of runs.

    Raises:
        StateError: the sweep does not exist.
    """
    sweep = view.require(app_id)
    engine = engine_of(sweep.header.scheduler)
    if query.follow:
        yield from _follow(engine_of, app_id, query, sweep)
        return
    chosen = _chosen(sweep, query)
    if query.tail is None:
        for run in chosen:
            yield from log_of(engine, run, query)
        return
    left, tails = query.tail, []
    for run in reversed(chosen):
        if left <= 0:
            break
        found = list(log_of(engine, run, replace(query, tail=left)))
        left -= sum(chunk.data.count(b"\n") for chunk in found)
        tails.append(found)
    for found in reversed(tails):
        yield from found


def log_of(engine: AnyScheduler, run: Run, query: LogQuery) -> Iterator[LogChunk]:
    """Yields the log of a run; nothing if its scheduler no longer has it.

    Args:
        engine: the scheduler of the run.
        run: the run.
        query: selects the lines of all of its replicas.
    """
    with sharing():
        described = engine.describe(run.app_id)
    if described is not None:
        yield from _log_of(engine, run, replace(query, replicas={}))


def chunks_of(engine: AnyScheduler, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the log of an application; nothing if its scheduler does not know it."""
    if isinstance(engine, LogChunks):
        return engine.log_chunks(app_id, query)
    described = engine.describe(app_id)
    if described is None:
        return iter(())
    return merged(engine, app_id, described.roles, query)


def _log_of(engine: AnyScheduler, run: Run, query: LogQuery) -> Iterator[LogChunk]:
    with sharing():
        chunks = chunks_of(engine, run.app_id, query)
    for chunk in chunks:
        yield replace(chunk, role=f"{run.number}/{chunk.role}")


def _chosen(sweep: Sweep, query: LogQuery) -> list[Run]:
    return [run for run in sweep.runs if not query.replicas or str(run.number) in query.replicas]


def _started(sweep: Sweep, query: LogQuery) -> list[Run]:
    return [run for run in _chosen(sweep, query) if run.app_id and run.state != "PENDING"]


def _is_over(run: Run) -> bool:
    return run.ended is not None or (run.state == "CANCELLED" and not run.app_id)


def _follow(engine_of: EngineOf, app_id: str, query: LogQuery, sweep: Sweep) -> Iterator[LogChunk]:
    """Yields the logs of runs as they are written, until all selected ones have ended."""
    engine = engine_of(sweep.header.scheduler)
    observed = begun = time.monotonic()
    readers = Readers[LogChunk](MOST_CHUNKS)
    followed: set[str] = set()
    due, ended = 0.0, False

    def read(run: Run) -> Iterator[LogChunk]:
        try:
            with sharing():
                described = engine.describe(run.app_id)
            if described is None and run.ended is None:
                followed.discard(run.app_id)  # it is just being submitted
            elif described is not None:
                yield from _log_of(engine, run, replace(query, replicas={}))
        except UsageError:  # of the query: the search for its pattern takes too long
            raise
        except (TorchxError, OSError):
            return  # the other runs are shown

    with readers:
        while True:
            now = time.monotonic()
            if now >= due:
                if sweep.header.native and now - observed > pause_after(observed - begun, first=PAUSE):
                    with suppress(UnavailableError), sharing():
                        native.reconcile(paths_of(app_id), engine_of)
                    observed = time.monotonic()
                sweep = view.require(app_id)
                ended = sweep.has_ended or all(map(_is_over, _chosen(sweep, query)))
                for run in _started(sweep, query):
                    if run.app_id not in followed:
                        followed.add(run.app_id)
                        readers.add(read(run), f"log {run.app_id}")
                due = time.monotonic() + PAUSE
            if ended and not readers.reading:
                return
            if (chunk := readers.get(max(due - time.monotonic(), 0.001))) is not None:
                yield chunk
