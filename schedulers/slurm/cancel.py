"""Wait for, cancel, kill and delete jobs."""

from __future__ import annotations

import contextlib
import time

from torchx.errors import OwnershipError, StateError
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.outcome import LIVE, read_script_end, save_outcome
from torchx.schedulers.slurm.paths import distrust_reason, write
from torchx.schedulers.slurm.queue import SlurmJob, find
from torchx.schedulers.slurm.record import Records, SlurmRecord, path_exists, remove_folder
from torchx.specs.status import AppState, is_terminal

POLL_INTERVAL = 0.1
"""Seconds between checks of the job's files."""
MIN_QUERY_INTERVAL, MAX_QUERY_INTERVAL = 1.0, 15.0
"""Seconds between queries to the controller; the interval grows to limit its load."""
MAX_OUTAGE = 60.0
"""Seconds without a response before an error is raised: a controller may be restarting."""
DELETE_TIMEOUT = 120.0
"""Seconds to wait for a deleted job to end."""


class Watch:
    """Watches for the end of a job.

    Args:
        job_id: the id of the job.
        record: the record of the job.
    """

    def __init__(self, job_id: int, record: SlurmRecord) -> None:
        self._app_id = f"{job_id}@{record.token}"
        self._record = record
        self._pause = MIN_QUERY_INTERVAL
        self._next = 0.0
        self._ended = False
        self._markers = 0
        self._unreachable_since: float | None = None

    def has_ended(self) -> bool:
        """Returns True if the job has ended; checks its files, and at growing intervals the controller.

        Raises:
            StateError: the controller has not responded for MAX_OUTAGE seconds.
        """
        if self._ended:
            return True
        ended = read_script_end(self._record.paths)
        now = time.monotonic()
        paths = self._record.paths
        markers = path_exists(paths.cancelled) + path_exists(paths.stopped)
        if markers != self._markers:  # the job is about to end
            self._markers, self._pause, self._next = markers, MIN_QUERY_INTERVAL, 0.0
        if ended is not None:
            self._ended = True
        elif now >= self._next:
            self._ended = self._query()
            self._next = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, MAX_QUERY_INTERVAL)
        return self._ended

    def _query(self) -> bool:
        started = time.monotonic()
        try:
            job = find(self._app_id)
        except client.NoAnswerError:
            if self._unreachable_since is None:
                self._unreachable_since = started
            if time.monotonic() - self._unreachable_since > MAX_OUTAGE:
                raise
            self._pause = MIN_QUERY_INTERVAL
            return False
        self._unreachable_since = None
        if job is None:
            return True
        save_outcome(job.record, job.outcome)
        return is_terminal(job.outcome.state)

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the job has ended; returns False on timeout."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            left = POLL_INTERVAL if end is None else min(POLL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True


def require_own(job: SlurmJob, verb: str) -> None:
    """Checks that a job belongs to the caller.

    Args:
        job: the job.
        verb: the operation, for the error message.

    Raises:
        OwnershipError: the job belongs to another user.
    """
    if job.owner:
        number = job.record.job_id
        raise OwnershipError(
            f"job {number} belongs to {job.owner}: only its owner can {verb} it with torchx",
            hint=f"a cluster operator can end it with: scancel {number}" if verb != "read" else None,
        )


def cancel(job: SlurmJob) -> None:
    """Cancels a job: sends TERM, then KILL after the grace time of the cluster.

    Raises:
        StateError: the job belongs to another user, or Slurm does not respond.
    """
    require_own(job, "cancel")
    save_outcome(job.record, job.outcome)
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        _scancel(job)


def kill(job: SlurmJob) -> None:
    """Kills all processes of a job immediately.

    Raises:
        StateError: the job belongs to another user, or Slurm does not respond.
    """
    require_own(job, "kill")
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        with contextlib.suppress(client.SlurmError):  # a pending job has no processes
            _scancel(job, "--signal=KILL", "--full")
        _scancel(job)


def delete(job: SlurmJob) -> None:
    """Cancels a job and removes its record and folder.

    Raises:
        StateError: the job belongs to another user or does not end, or its folder is not trusted.
    """
    require_own(job, "delete")
    cancel(job)
    end = time.monotonic() + DELETE_TIMEOUT
    app_id = f"{job.record.job_id}@{job.record.token}"
    while (now := find(app_id)) is not None and not _has_ended(now):
        if time.monotonic() > end:
            raise StateError(
                f"job {job.record.job_id} has not ended after {DELETE_TIMEOUT:.0f} s", hint="try again later"
            )
        time.sleep(POLL_INTERVAL)
    Records().remove(job.record)
    remove_folder(job.record)


def _has_ended(job: SlurmJob) -> bool:
    """Returns True if a job has ended, or is unknown and not in the queue."""
    state = job.outcome.state
    lives = any(part.state in LIVE for part in job.queue)
    return is_terminal(state) or (state is AppState.UNKNOWN and not lives)


def _mark(record: SlurmRecord) -> None:
    if record.folder and not distrust_reason(record.paths.folder, record.token):
        with contextlib.suppress(OSError):
            write(record.paths.cancelled, "")


def _scancel(job: SlurmJob, *options: str) -> None:
    """Calls scancel unless the id now belongs to another job."""
    if job.lost:
        return
    try:
        client.call(["scancel", *options, str(job.record.job_id)])
    except client.NoAnswerError:
        raise
    except client.SlurmError as error:
        if "nvalid job" not in error.output and "already complet" not in error.output:
            raise
