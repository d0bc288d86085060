"""Cancel, kill and delete jobs."""

from __future__ import annotations

import contextlib
import time

from torchx.errors import StateError
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.outcome import LIVE, save_outcome
from torchx.schedulers.slurm.paths import distrust_reason, write
from torchx.schedulers.slurm.queue import SlurmJob, find, require_own
from torchx.schedulers.slurm.record import Records, SlurmRecord, remove_folder
from torchx.specs.status import AppState, is_terminal

POLL_INTERVAL = 0.1
"""Seconds between checks whether a deleted job has ended."""
DELETE_TIMEOUT = 120.0
"""Seconds to wait for a deleted job to end."""


def cancel(app_id: str) -> None:
    """Cancels a job that Slurm knows; see :func:`cancel_job`."""
    if (job := find(app_id)) is not None:
        cancel_job(job)


def kill(app_id: str) -> None:
    """Kills all processes of a job immediately, if Slurm knows it."""
    if (job := find(app_id)) is not None:
        _kill_job(job)


def delete(app_id: str) -> None:
    """Cancels a job and removes its record and folder, if Slurm knows it."""
    if (job := find(app_id)) is not None:
        _delete_job(job)


def cancel_job(job: SlurmJob) -> None:
    """Cancels a job: sends TERM, then KILL after the grace time of the cluster.

    Raises:
        StateError: the job belongs to another user, or Slurm does not respond.
    """
    require_own(job, "cancelled")
    save_outcome(job.record, job.outcome)
    if not is_terminal(job.outcome.state):
        mark_cancelled(job.record)
        _scancel(job)


def _kill_job(job: SlurmJob) -> None:
    require_own(job, "killed")
    if not is_terminal(job.outcome.state):
        mark_cancelled(job.record)
        with contextlib.suppress(client.SlurmError):  # a pending job has no processes
            _scancel(job, "--signal=KILL", "--full")
        _scancel(job)


def _delete_job(job: SlurmJob) -> None:
    require_own(job, "deleted")
    cancel_job(job)
    end = time.monotonic() + DELETE_TIMEOUT
    app_id = f"{job.record.key}@{job.record.token}"
    while (now := find(app_id)) is not None and not has_ended(now):
        if time.monotonic() > end:
            raise StateError(
                f"job {job.record.key} has not ended after {DELETE_TIMEOUT:.0f} s", hint="try again later"
            )
        time.sleep(POLL_INTERVAL)
    Records().remove(job.record)
    remove_folder(job.record)


def has_ended(job: SlurmJob) -> bool:
    """Returns True if a job has ended, or is unknown and not in the queue."""
    state = job.outcome.state
    lives = any(part.state in LIVE for part in job.queue)
    return is_terminal(state) or (state is AppState.UNKNOWN and not lives)


def mark_cancelled(record: SlurmRecord, *, sync: bool = True) -> None:
    """Records that a job was cancelled, in its folder.

    Args:
        record: the job.
        sync: wait until the mark is on the disk.
    """
    if record.folder and not distrust_reason(record.paths.folder, record.token):
        with contextlib.suppress(OSError):
            write(record.paths.cancelled, "", sync=sync)


def _scancel(job: SlurmJob, *options: str) -> None:
    """Calls scancel unless the id now belongs to another job."""
    if job.lost:
        return
    try:
        client.call(["scancel", *options, job.record.key])
    except client.NoAnswerError:
        raise
    except client.SlurmError as error:
        if "nvalid job" not in error.output and "already complet" not in error.output:
            raise
