"""Cancels, kills and deletes local jobs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs import end
from torchx.jobs.catalog import paths_of
from torchx.jobs.pruning import remove_job, remove_unreadable
from torchx.jobs.view import load
from torchx.machine import locks
from torchx.schedulers.local.status import LocalJobs


def cancel(jobs: LocalJobs, app_id: str, *, now: bool = False) -> None:
    """Requests the end of a job that has not ended."""
    view = jobs.reconcile(app_id)
    if view is not None and not view.has_ended:
        end.request(paths_of(jobs.home, app_id), now=now)


def delete(jobs: LocalJobs, app_id: str) -> None:
    """Ends a job and removes its record and its logs; does nothing if it does not exist."""
    paths = paths_of(jobs.home, app_id)
    try:
        view = jobs.reconcile(app_id)
    except StateError:
        if not jobs.claims(paths):
            raise
        view = None
    if view is None:
        if os.path.lexists(paths.folder) and jobs.claims(paths):
            remove_unreadable(jobs.home, paths)
        return
    cancel(jobs, app_id)
    try:
        locks.wait_free(paths.lock)
    except OSError:  # not a regular file of this user
        remove_unreadable(jobs.home, paths)
        return
    with contextlib.suppress(FileNotFoundError):  # removed by another command
        remove_job(paths, Path(load(paths).record.log_dir))
