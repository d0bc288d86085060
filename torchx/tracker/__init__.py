"""Trackers: what a run was made with and what came of it, kept for later.

In a replica::

    from torchx.tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(lr=0.01, accuracy=0.93)
    run.add_artifact("model", "s3://bucket/model.pt")

Outside a job, or where no tracker is configured, nothing is kept, and nothing fails.
"""

from __future__ import annotations

from torchx.tracker.api import AppRun as AppRun


def app_run_from_env() -> AppRun:
    """Returns the run of this process, as its launcher told it, see :meth:`AppRun.run_from_env`."""
    return AppRun.run_from_env()
