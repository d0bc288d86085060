"""All jobs on record, by name: read once for all schedulers that keep their jobs in the same place."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from torchx.jobs import ended
from torchx.jobs.paths import Home, JobPaths, file_name

SETTLED = 0.1
"""Seconds after which two changes of a folder have different times, whatever the clock of its file system."""

_Signature = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class Catalog:
    """What is on record.

    Attributes:
        app_ids: of all jobs, as the file system has them.
        lines: of the list of ended jobs, by id; it may lack some, and have some that are gone.
    """

    app_ids: frozenset[bytes]
    lines: dict[bytes, bytes]


_lock = threading.Lock()
_read: tuple[Home, _Signature, Catalog] | None = None


def catalog(home: Home) -> Catalog:
    """Returns what is on record; what has been read before when nothing has changed since."""
    global _read  # a memory of this process
    with _lock:
        now, signature = time.time_ns(), (_signature(home.jobs), _signature(home.ended))
        if _read is not None and _read[:2] == (home, signature):
            return _read[2]
        found = _look(home)
        newest = max((each[0] for each in signature if each is not None), default=0)
        # a change right after the reading may have the same time as the one before it
        _read = (home, signature, found) if newest < now - SETTLED * 1e9 else None
        return found


def paths_of(home: Home, app_id: str) -> JobPaths:
    """Returns the paths of a job by the id that a listing shows.

    A folder that no job has made may have a name that is no id; it is listed as that name in a path.
    """
    paths = home.job(app_id)
    if "%" in app_id and not os.path.lexists(paths.folder):
        for name in catalog(home).app_ids:
            if file_name(os.fsdecode(name)) == app_id:
                return JobPaths(home.jobs / os.fsdecode(name))
    return paths


def _signature(path: os.PathLike[str]) -> tuple[int, int, int] | None:
    try:
        told = os.stat(path)  # noqa: PTH116  # any path
    except OSError:
        return None
    return told.st_mtime_ns, told.st_size, told.st_ino


def _look(home: Home) -> Catalog:
    try:
        names = os.listdir(os.fsencode(home.jobs))  # noqa: PTH208  # bytes, as in the list
    except OSError:
        return Catalog(frozenset(), {})
    app_ids = frozenset(name for name in names if not name.startswith(b"."))
    return Catalog(app_ids, ended.lines(home) if app_ids else {})
