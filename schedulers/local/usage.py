"""The measurements of local jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx.jobs.usage import read_usage

if TYPE_CHECKING:
    from torchx.schedulers.local.status import LocalJobs
    from torchx.scheduling.usage import AppUsage


def usage(jobs: LocalJobs, app_id: str) -> AppUsage | None:
    """Returns the measurements that the supervisor of a job recorded, or None."""
    view = jobs.find(app_id)
    return None if view is None else read_usage(view, jobs.home.job(app_id))
