"""Cancel, kill and delete jobs."""

from __future__ import annotations

import contextlib

from torchx.schedulers.shared.batch.folders import mark_cancelled, remove_folders, wait_until_ended
from torchx.schedulers.shared.batch.outcome import save_outcome
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.parse import ENDED
from torchx.schedulers.slurm.queue import SlurmJob, find, require_own
from torchx.specs.status import AppState, is_terminal


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
        with contextlib.suppress(client.ProgramError):  # a pending job has no processes
            _scancel(job, "--signal=KILL", "--full")
        _scancel(job)


def _delete_job(job: SlurmJob) -> None:
    require_own(job, "deleted")
    cancel_job(job)

    def is_over() -> bool:
        now = find(job.record.full_id)
        return now is None or has_ended(now)

    wait_until_ended(job.record.key, is_over)
    Records("slurm").remove(job.record)
    remove_folders(job.record)


def has_ended(job: SlurmJob) -> bool:
    """Returns True if a job has ended, or is unknown and not in the queue."""
    state = job.outcome.state
    lives = any(part.state not in ENDED for part in job.queue)
    return is_terminal(state) or (state is AppState.UNKNOWN and not lives)


def _scancel(job: SlurmJob, *options: str) -> None:
    """Calls scancel unless the id now belongs to another job."""
    if not job.lost:
        client.change_jobs(["scancel", *options, job.record.key])
