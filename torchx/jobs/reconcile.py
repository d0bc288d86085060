"""The state of a job whose supervisor may be dead: read it, or finalize the job."""

from __future__ import annotations

import os
import time

from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.record import damaged
from torchx.jobs.view import JobView, load
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine import locks as lock

with lazy_imports:
    from torchx.jobs import recovery, ticket
    from torchx.notifications import launch
    from torchx.queue import launch as waiting


def is_supervised(paths: JobPaths, within: float = 0.0) -> bool:
    """Returns True if a supervisor holds the lock of a job, even if its record is damaged.

    Args:
        paths: the job.
        within: seconds to wait until the supervisor has ended.
    """
    try:
        return files.is_own_folder(paths.folder) and not lock.wait_free(paths.lock, within)
    except OSError:
        return False


def _acquire(paths: JobPaths) -> int | None:
    """Takes the lock of a job; returns None if its supervisor is alive."""
    if lock.is_held(paths.lock):
        return None
    while (held := lock.acquire(paths.lock)) is None:
        if not paths.folder.exists():
            raise FileNotFoundError(paths.folder)
        lock.wait_free(paths.lock, 1.0)
    return held


TIME_RESOLUTION = 0.1
"""Seconds after which two changes of a file have different times, on any file system."""

_last: tuple[tuple[object, ...], JobView] | None = None
"""The files that were read last, and their content: one command makes several queries."""


def read(paths: JobPaths) -> JobView:
    """Reads the state of a job, unless its files are those that were read last; changes nothing.

    A job of processes whose supervisor is dead is returned as ended, though no end is recorded.

    Raises:
        FileNotFoundError: the job has no record.
        StateError: its record is damaged, or cannot be read.
    """
    view = _load(paths)
    if view.has_ended or _is_held(paths):
        return view
    view = load(paths)  # again: the job may have ended properly in the meantime
    if _waits(view, paths):
        view.orphaned = True  # it has no keeper; it starts one again, unless the machine was restarted
    elif not view.has_ended:
        if not view.record.engine:
            recovery.presume_end(view)
        view.orphaned = True
    return view


def _load(paths: JobPaths) -> JobView:
    global _last  # a cache of this process
    try:
        stats = [path.lstat() for path in (paths.record, paths.events)]
    except OSError:
        return load(paths)
    files_read = (
        paths.folder,
        *((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats),
    )
    known = _last
    if known is not None and known[0] == files_read:
        return known[1]
    view = load(paths)
    newest = max(s.st_ctime for s in stats)
    # a change right after the reading may have the same time as the one before it
    _last = None
    if newest < time.time() - TIME_RESOLUTION:
        _last = (files_read, view)
    return view


def _waits(view: JobView, paths: JobPaths) -> bool:
    """Returns True if a job without a supervisor waits for one."""
    return view.supervisor is None and paths.is_waiting()


def _is_held(paths: JobPaths) -> bool:
    try:
        return lock.is_held(paths.lock)
    except OSError as error:
        raise damaged(paths.lock, error.strerror) from error


def reconcile(paths: JobPaths) -> JobView:
    """Reads the state of a job; finalizes one of processes first if its supervisor is dead.

    Raises:
        FileNotFoundError: the job has no record.
        StateError: its record is damaged, or cannot be read.
    """
    view = load(paths)
    if view.has_ended:
        if paths.is_waiting():  # its keeper was killed before it removed the ticket
            ticket.clear(Home(paths.folder.parent.parent), paths)
        return view
    try:
        held = _acquire(paths)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise damaged(paths.lock, error.strerror) from error
    if held is None:
        return view
    try:
        view = load(paths)  # again: the job may have ended properly in the meantime
        if _waits(view, paths):
            os.close(held)
            held = None
            waiting.revive(Home(paths.folder.parent.parent), paths)
        elif not view.has_ended and not view.record.engine:
            recovery.finalize_orphaned_job(view, paths)
            launch.start(paths, reap=True)
    finally:
        if held is not None:
            os.close(held)
    return view
