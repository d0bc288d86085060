"""Trackers: record the inputs and results of runs.

In a replica::

    from torchx.tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(lr=0.01, accuracy=0.93)
    run.add_artifact("model", "s3://bucket/model.pt")

Outside a job, or without a configured tracker, these calls do nothing.
"""

from __future__ import annotations

from torchx.tracker.api import AppRun as AppRun


def app_run_from_env() -> AppRun:
    """Returns the run of this process; see :meth:`AppRun.run_from_env`."""
    return AppRun.run_from_env()
