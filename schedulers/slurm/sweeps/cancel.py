"""Cancels, removes and limits the tasks of job arrays, in few calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from torchx.errors import StateError
from torchx.schedulers.shared.batch.folders import DELETE_TIMEOUT, FIRST_PAUSE, mark_cancelled, remove_folders
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.cancel import has_ended
from torchx.schedulers.slurm.queue import SlurmJob
from torchx.schedulers.slurm.sweeps.states import find_many
from torchx.scheduling.pace import pause_after
from torchx.specs.status import AppState, is_terminal

PER_CALL = 500
"""Maximum number of ids in one call of scancel."""


def cancel_many(app_ids: Collection[str], *, now: bool = False) -> None:
    """Cancels jobs that have not ended.

    Args:
        app_ids: the jobs.
        now: kill the processes of running ones, without a grace period.

    Raises:
        StateError: Slurm does not respond.
    """
    live = [job for job in find_many(app_ids).values() if not is_terminal(job.outcome.state) and not job.lost]
    for job in live:
        mark_cancelled(job.record, sync=False)
    running = [job.record.key for job in live if job.outcome.state is AppState.RUNNING]
    if now and running:
        with contextlib.suppress(client.ProgramError):
            _scancel(running, "--signal=KILL", "--full")
    _scancel([job.record.key for job in live])


def _scancel(keys: Sequence[str], *options: str) -> None:
    for begin in range(0, len(keys), PER_CALL):
        client.change_jobs(["scancel", *options, *keys[begin : begin + PER_CALL]])


def delete_many(app_ids: Collection[str]) -> None:
    """Removes the records and folders of jobs, which are cancelled if they have not ended.

    Raises:
        StateError: a job does not end, or a folder cannot be removed.
    """
    cancel_many(app_ids)
    begun = time.monotonic()
    found = find_many(app_ids)
    while not all(map(has_ended, found.values())):
        waited = time.monotonic() - begun
        if waited > DELETE_TIMEOUT:
            raise StateError(f"jobs have not ended after {DELETE_TIMEOUT:.0f} s", hint="try again later")
        time.sleep(pause_after(waited, first=FIRST_PAUSE))
        found = find_many(app_ids)
    Records("slurm").remove(*(job.record for job in found.values()))
    for job in found.values():
        remove_folders(job.record)


def limit_many(app_ids: Iterable[str], at_once: int) -> None:
    """Changes the maximum number of tasks at the same time; 0 for no limit.

    Of several arrays, each then starts after the one before.

    Raises:
        StateError: Slurm does not respond, or rejects the change.
    """
    live = find_many(app_ids).values()
    arrays = list(_arrays(live))
    for before, array in zip([0, *arrays], arrays, strict=False):
        _update(array, f"ArrayTaskThrottle={at_once}")
        if at_once and before and _waits(live, array):
            _update(array, f"Dependency=afterany:{before}")


def _waits(jobs: Iterable[SlurmJob], array: int) -> bool:
    """Returns True if no task of an array has started."""
    return all(job.outcome.state is AppState.PENDING for job in jobs if job.record.job_id == array)


def _arrays(jobs: Iterable[SlurmJob]) -> Iterator[int]:
    """Yields the ids of the arrays of jobs that have not ended, in order."""
    live = (job for job in jobs if not is_terminal(job.outcome.state) and job.record.task is not None)
    yield from sorted({job.record.job_id for job in live})


def _update(job_id: int, change: str) -> None:
    client.change_jobs(["scontrol", "update", f"JobId={job_id}", change], over="already")
