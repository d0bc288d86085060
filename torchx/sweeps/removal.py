"""Removes sweeps with their runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from torchx.errors import StateError, TorchxError
from torchx.jobs import hidden
from torchx.jobs.paths import file_name
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.scheduling.base import AnyScheduler, EngineOf, Prunes, SubmitsMany
from torchx.scheduling.query import Pruned
from torchx.sweeps import progress, requests, view
from torchx.sweeps.paths import INDEX, SweepPaths, paths_of
from torchx.sweeps.progress import Entry

with lazy_imports:
    from torchx.sweeps import native


def delete(engine_of: EngineOf, app_id: str) -> None:
    """Cancels a sweep, waits for its end, and removes it with all of its runs.

    Args:
        engine_of: returns the scheduler of a name.
        app_id: the sweep; nothing happens if it does not exist.
    """
    paths = paths_of(app_id)
    if not files.is_own_folder(paths.folder):
        return
    try:
        found = view.find(paths)
    except StateError:
        _discard(paths)
        return
    if found is None:
        _discard(paths)
        return
    while not found.has_ended:
        requests.end(paths)
        if found.header.native:
            native.wait(paths, engine_of, None)
        locks.wait_free(paths.lock)
        found = view.require(app_id)
    engine = engine_of(found.header.scheduler)
    _delete_runs(engine, _begun(paths))
    _discard(paths)
    index = paths.folder.parent / INDEX / file_name(found.header.identity)
    with suppress(OSError, ValueError):
        if files.read_file(index, 1 << 12).decode() == app_id:  # else it has a newer sweep
            index.unlink()


def _begun(paths: SweepPaths) -> list[str]:
    """Returns the ids of all applications of a sweep, with those of runs that ran again."""
    app_ids: list[str] = []

    def add(entry: Entry) -> None:
        app_ids.extend(begin["id"] for begin in progress.begins_of(entry))

    progress.read(paths, add)
    return [app_id for app_id in dict.fromkeys(app_ids) if isinstance(app_id, str)]


def _delete_runs(engine: AnyScheduler, app_ids: list[str]) -> None:
    for app_id in app_ids:
        hidden.forget(engine.backend, app_id)
    if isinstance(engine, SubmitsMany):
        with suppress(TorchxError):
            engine.delete_many(app_ids)
            return
    if isinstance(engine, Prunes):
        for _ in engine.prune(app_ids):
            pass
    for app_id in app_ids:  # those that a prune leaves, such as damaged ones
        with suppress(TorchxError):
            engine.delete(app_id)


def prune(engine_of: EngineOf, app_ids: Iterable[str], *, dryrun: bool) -> Iterator[Pruned]:
    """Removes ended sweeps with their runs, and yields each.

    Args:
        engine_of: returns the scheduler of a name.
        app_ids: the sweeps.
        dryrun: remove nothing.
    """
    for app_id in app_ids:
        paths = paths_of(app_id)
        found = view.find(paths)
        if found is not None and found.has_ended:
            size = sum(entry.stat().st_size for entry in os.scandir(paths.folder) if entry.is_file())
            if not dryrun:
                delete(engine_of, app_id)
            yield Pruned(str(paths.folder), size, app_id)


def _discard(paths: SweepPaths) -> None:
    """Removes the folder of a sweep, after hiding it."""
    hidden = Path(f"{paths.folder.parent}/.{paths.folder.name}.{os.urandom(4).hex()}")
    with suppress(FileNotFoundError):
        paths.folder.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
