"""The state of a job as it is told to people: never that of a job whose supervisor is dead."""

from __future__ import annotations

import os

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import damaged
from torchx.jobs.view import JobView, load
from torchx.machine import files
from torchx.machine import locks as lock


def is_supervised(paths: JobPaths) -> bool:
    """Returns True when a supervisor holds the lock of a job, whatever else is wrong with its record."""
    try:
        return files.is_own_folder(paths.folder) and lock.is_held(paths.lock)
    except OSError:
        return False


def _acquire(paths: JobPaths) -> int | None:
    """Takes the lock of a job whose supervisor is dead; None when it lives."""
    if lock.is_held(paths.lock):
        return None
    while (held := lock.acquire(paths.lock)) is None:
        if not paths.folder.exists():
            raise FileNotFoundError(paths.folder)
        lock.wait_free(paths.lock, 1.0)
    return held


def settle(paths: JobPaths) -> JobView:
    """Reads the state of a job; one whose supervisor is dead is brought to an end first.

    Raises:
        FileNotFoundError: no such job is on record.
        StateError: its record is damaged, or cannot be read.
    """
    view = load(paths)
    if view.has_ended:
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
        view = load(paths)  # its supervisor may have ended it properly between the two looks
        if not view.has_ended:
            from torchx.jobs.recovery import bury  # on demand: few supervisors die

            bury(view, paths)
    finally:
        os.close(held)
    return view
