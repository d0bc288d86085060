"""Starts the conductor of a sweep, which starts its runs."""

from __future__ import annotations

import os

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.machine import locks
from torchx.schedulers import BUILT_IN, create_scheduler
from torchx.sweeps.paths import SweepPaths

with lazy_imports:
    from torchx.supervisor import process

MODULE = "torchx.sweeps.conductor"


def start(paths: SweepPaths, scheduler: str) -> None:
    """Starts the conductor of a sweep, unless it has one.

    Args:
        paths: the files of the sweep.
        scheduler: the scheduler of the runs.

    Raises:
        StateError: it cannot be started.
    """
    try:
        held = None
        while held is None:  # a process that waits for the conductor holds it for a moment
            if locks.is_held(paths.lock):
                return
            held = locks.acquire(paths.lock)
        # the local schedulers need no installed packages
        isolated = scheduler in BUILT_IN and create_scheduler(scheduler, "").cheap_to_list
        try:
            process.start(MODULE, [str(paths.folder), str(held)], paths.log, [held], isolated=isolated)
        finally:
            os.close(held)
    except OSError as error:
        raise StateError(
            f"the request to {paths.folder.name} is recorded, but nothing can be started "
            f"at {error.filename or paths.folder}: {error.strerror}",
            hint=f"to start it: torchx wait {paths.folder.name}",
        ) from error
