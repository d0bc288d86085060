"""Reads the logs of local jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.log_reader import JobLog, Member
from torchx.jobs.paths import LogPaths
from torchx.machine import files, locks
from torchx.schedulers.local.status import LocalJobs
from torchx.scheduling.checks import unknown_application
from torchx.scheduling.logs import LogChunk, LogQuery


def read_logs(jobs: LocalJobs, app_id: str, query: LogQuery) -> Iterator[LogChunk]:
    """Returns the log of a job.

    Raises:
        StateError: the job is not on record.
    """
    view = jobs.find(app_id)
    if view is None:
        raise unknown_application(jobs.scheduler, app_id)
    paths = jobs.home.job(app_id)
    folder = Path(view.record.log_dir)
    if os.path.lexists(folder) and not files.is_own_folder(folder):
        raise StateError(f"the log folder {folder} is not a folder of this user")
    members = [Member(replica.role, replica.id) for replica in view.replicas]
    log = JobLog(LogPaths(folder), members, lambda: locks.is_held(paths.lock))
    return log.read(query)
