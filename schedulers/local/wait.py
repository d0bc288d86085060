"""Waits until a local job has ended."""

from __future__ import annotations

import contextlib
import time

from torchx.errors import StateError
from torchx.jobs.catalog import paths_of
from torchx.jobs.view import load
from torchx.machine import locks, processes
from torchx.schedulers.local.status import LocalJobs

STARTS_WITHIN = 0.2
"""Seconds between two checks of a waiting job without a keeper."""


def may_wait(jobs: LocalJobs, app_id: str) -> bool:
    """Returns True if a job is in the queue of this machine."""
    return paths_of(jobs.home, app_id).is_waiting()


def wait(jobs: LocalJobs, app_id: str, timeout: float | None) -> bool:
    """Blocks until a job has ended, for at most `timeout` seconds; returns False if it timed out."""
    paths = paths_of(jobs.home, app_id)
    if timeout is None:
        while locks.wait_free(paths.lock) and paths.is_waiting():
            time.sleep(STARTS_WITHIN)  # its keeper was killed, or takes the lock now
            jobs.reconcile(app_id)
        return True
    end = time.monotonic() + timeout
    # waiting for a lock has no timeout, but waiting for the processes that hold it has
    with contextlib.suppress(OSError, StateError):
        view = load(paths)
        for holder in (view.supervisor, view.guard):
            if holder is not None and not view.has_ended:
                processes.wait_end(holder, end - time.monotonic())
    while locks.wait_free(paths.lock, max(0.0, end - time.monotonic())):
        if not paths.is_waiting():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(STARTS_WITHIN)
        jobs.reconcile(app_id)
    return False
