"""Cancel, kill and delete jobs."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import user_home
from torchx.machine import trees
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.outcome import save_outcome
from torchx.schedulers.slurm.parse import ENDED
from torchx.schedulers.slurm.paths import SlurmPaths, distrust_reason, read_own, tasks_in, write
from torchx.schedulers.slurm.queue import SlurmJob, find, require_own
from torchx.schedulers.slurm.record import Records, SlurmRecord
from torchx.scheduling.pace import pause_after
from torchx.specs.status import AppState, is_terminal

FIRST_PAUSE = 0.1
"""Seconds between the first two checks whether a deleted job has ended."""
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
    begun = time.monotonic()
    app_id = job.record.full_id
    while (now := find(app_id)) is not None and not has_ended(now):
        waited = time.monotonic() - begun
        if waited > DELETE_TIMEOUT:
            raise StateError(
                f"job {job.record.key} has not ended after {DELETE_TIMEOUT:.0f} s", hint="try again later"
            )
        time.sleep(pause_after(waited, first=FIRST_PAUSE))
    Records().remove(job.record)
    remove_folders(job.record)


def remove_folders(record: SlurmRecord) -> None:
    """Removes the folders of a job.

    Raises:
        StateError: a folder is not trusted, belongs to another job, or cannot be removed.
    """
    for folder in record.folders or _folders_of_token(record.token):
        why = distrust_reason(folder, record.token)
        holder = (read_own(SlurmPaths(folder).id) or b"").strip()
        if not why and holder not in (b"", record.key.encode()):
            why = "it belongs to another job"
        if why:
            raise StateError(f"folder of job {record.key} not removed: {folder}: {why}")
        for _ in range(20):  # a node may still be writing to it
            with contextlib.suppress(OSError):
                trees.remove(folder)
            if not folder.exists():
                break
            time.sleep(0.1)
        else:
            raise StateError(f"cannot remove the folder of job {record.key}: {folder}")
        if record.task is not None:
            _remove_array(folder, record)


def _remove_array(folder: Path, record: SlurmRecord) -> None:
    """Removes the folder of a job array after that of its last task."""
    array = folder.with_name(folder.name.removesuffix(f"-{record.task}"))
    if array != folder and not distrust_reason(array, record.token) and not any(tasks_in(array)):
        with contextlib.suppress(OSError):
            trees.remove(array)


def _folders_of_token(token: str) -> list[Path]:
    """Returns the trusted folders in the state home whose names contain the token of a job."""
    paths = (user_home() / "slurm" / "jobs").glob(f"*{token}*")
    return [path for path in paths if not distrust_reason(path, token)]


def has_ended(job: SlurmJob) -> bool:
    """Returns True if a job has ended, or is unknown and not in the queue."""
    state = job.outcome.state
    lives = any(part.state not in ENDED for part in job.queue)
    return is_terminal(state) or (state is AppState.UNKNOWN and not lives)


def mark_cancelled(record: SlurmRecord, *, sync: bool = True) -> None:
    """Records that a job was cancelled, in its folders: its script may not have chosen one yet.

    Args:
        record: the job.
        sync: wait until the mark is on the disk.
    """
    for folder in record.folders:
        if not distrust_reason(folder, record.token):
            with contextlib.suppress(OSError):
                write(SlurmPaths(folder).cancelled, "", sync=sync)


def _scancel(job: SlurmJob, *options: str) -> None:
    """Calls scancel unless the id now belongs to another job."""
    if not job.lost:
        client.change_jobs(["scancel", *options, job.record.key])
