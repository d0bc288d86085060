"""Catalog of all recorded jobs, read once for all schedulers that share a state home."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths, file_name
from torchx.jobs.reconcile import TIME_RESOLUTION, is_supervised, read, reconcile
from torchx.jobs.view import load
from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx.jobs import ended, ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx.jobs.view import JobView

_Signature = tuple[tuple[int, int, int] | None, ...]


class Catalog(NamedTuple):
    """The recorded jobs.

    Attributes:
        app_ids: the ids of all jobs, as file names.
        lines: the list of ended jobs, by id; may lack jobs, and may have jobs that were removed.
    """

    app_ids: frozenset[bytes]
    lines: dict[bytes, bytes]


_lock = threading.Lock()
_read: tuple[Home, _Signature, Catalog] | None = None


def catalog(home: Home) -> Catalog:
    """Returns the recorded jobs; reads them again only if the folder or the list has changed."""
    global _read  # a cache of this process
    with _lock:
        now, signature = time.time_ns(), (_signature(home.jobs), _signature(home.ended))
        if _read is not None and _read[:2] == (home, signature):
            return _read[2]
        found = _load(home)
        newest = max((stamp[0] for stamp in signature if stamp is not None), default=0)
        # a change right after the reading may have the same time as the one before it
        _read = None
        if newest < now - TIME_RESOLUTION * 1e9:
            _read = (home, signature, found)
        return found


def paths_of(home: Home, app_id: str) -> JobPaths:
    """Returns the paths of a job by its listed id.

    A folder that torchx did not create may have a name that is not an id; it is listed by its escaped name.
    """
    paths = home.job(app_id)
    if "%" in app_id and not os.path.lexists(paths.folder):
        for name in catalog(home).app_ids:
            if file_name(os.fsdecode(name)) == app_id:
                return JobPaths(home.jobs / os.fsdecode(name))
    return paths


def find(
    home: Home, app_id: str, read_view: Callable[[JobPaths], JobView] = read
) -> tuple[JobPaths, JobView] | None:
    """Returns the paths and the state of a job by its listed id; None if it is not on record.

    Args:
        home: the state home.
        app_id: the job.
        read_view: reads its state.

    Raises:
        StateError: its record is damaged, or cannot be read.
    """
    paths = paths_of(home, app_id)
    try:
        return paths, read_view(paths)
    except (FileNotFoundError, NotADirectoryError):
        return None


def end_orphans(home: Home) -> list[str]:
    """Finalizes jobs whose supervisors were killed: their replicas may use resources without a lease.

    Waiting jobs are left out: each submission and each decision of the queue would check all of them.

    Returns:
        The names of the folders of these jobs.
    """
    listed, finalized = catalog(home), []
    waiting = map(os.fsencode, ticket.marked(home))
    for name in (listed.app_ids - listed.lines.keys()).difference(waiting):
        paths = JobPaths(home.jobs / os.fsdecode(name))
        with contextlib.suppress(OSError, StateError):  # removed in the meantime, or damaged
            if is_supervised(paths):
                continue
            view = load(paths)
            if view.supervisor is not None and not view.has_ended and not view.record.engine:
                reconcile(paths)
                finalized.append(paths.folder.name)
    return finalized


def _signature(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  # any path
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(home: Home) -> Catalog:
    try:
        names = os.listdir(os.fsencode(home.jobs))  # noqa: PTH208  # bytes, as in the list
    except OSError:
        return Catalog(frozenset(), {})
    app_ids = frozenset(name for name in names if not name.startswith(b"."))
    return Catalog(app_ids, ended.lines(home) if app_ids else {})
