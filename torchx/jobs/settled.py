"""The state of a job as it is told to people: never that of a job whose supervisor is dead."""

from __future__ import annotations

import os

from torchx.jobs import lock
from torchx.jobs.paths import JobPaths
from torchx.jobs.view import JobView, load


def settle(paths: JobPaths) -> JobView:
    """Reads the state of a job; one whose supervisor is dead is brought to an end first.

    Raises:
        FileNotFoundError: no such job is on record.
        StateError: its record is damaged, or cannot be read.
    """
    view = load(paths)
    if view.has_ended or lock.is_held(paths.lock):
        return view
    # its supervisor may have ended it properly between the two looks
    while (held := lock.acquire(paths.lock)) is None:
        if not paths.folder.exists():
            raise FileNotFoundError(paths.folder)
        lock.wait_free(paths.lock, 1.0)
    try:
        view = load(paths)
        if not view.has_ended:
            from torchx.jobs.recovery import bury  # on demand: few supervisors die

            bury(view, paths)
    finally:
        os.close(held)
    return view
