"""The end of a job: waited for, or brought about."""

from __future__ import annotations

import contextlib
import time

from torchx.errors import OwnershipError, StateError
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.outcome import LIVE, read_over, remember
from torchx.schedulers.slurm.paths import distrusted, write
from torchx.schedulers.slurm.queue import SlurmJob, find
from torchx.schedulers.slurm.record import Records, SlurmRecord, is_there, remove_folder
from torchx.specs.status import AppState, is_terminal

LOOK = 0.1
"""Seconds between two looks at what the script has left."""
FIRST_ASKED, LONGEST_ASKED = 1.0, 15.0
"""Seconds between two questions to the controller: more and more, for it has others to serve."""
LONGEST_AWAY = 60.0
"""Seconds without an answer after which it is said that there is none: a controller may start again."""
LONGEST_END = 120.0
"""Seconds that a deleted job may take to end."""


class Watch:
    """Tells when a job has ended.

    Args:
        job_id: its id.
        record: what is kept of it.
    """

    def __init__(self, job_id: int, record: SlurmRecord) -> None:
        self._app_id = f"{job_id}@{record.token}"
        self._record = record
        self._pause = FIRST_ASKED
        self._next = 0.0
        self._ended = False
        self._told = 0
        self._away_since: float | None = None

    def has_ended(self) -> bool:
        """Tells whether the job has ended: by its own files, and now and then the controller is asked.

        Raises:
            StateError: the controller has not answered for a while.
        """
        if self._ended:
            return True
        over = read_over(self._record.paths)
        now = time.monotonic()
        paths = self._record.paths
        told = is_there(paths.cancelled) + is_there(paths.stopped)
        if told != self._told:  # its end is near
            self._told, self._pause, self._next = told, FIRST_ASKED, 0.0
        if over is not None:
            self._ended = True
        elif now >= self._next:
            self._ended = self._ask()
            self._next = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, LONGEST_ASKED)
        return self._ended

    def _ask(self) -> bool:
        asked = time.monotonic()
        try:
            job = find(self._app_id)
        except client.NoAnswerError:
            if self._away_since is None:
                self._away_since = asked
            if time.monotonic() - self._away_since > LONGEST_AWAY:
                raise
            self._pause = FIRST_ASKED
            return False
        self._away_since = None
        if job is None:
            return True
        remember(job.record, job.outcome)
        return is_terminal(job.outcome.state)

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the job has ended; False when so many seconds passed before."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            left = LOOK if end is None else min(LOOK, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True


def require_own(job: SlurmJob, verb: str) -> None:
    """Refuses to change a job of another user.

    Args:
        job: the job.
        verb: what is about to be done with it.

    Raises:
        OwnershipError: it belongs to another user.
    """
    if job.owner:
        number = job.record.job_id
        raise OwnershipError(
            f"job {number} belongs to {job.owner}: only its owner can {verb} it with torchx",
            hint=f"an operator of the cluster ends it with: scancel {number}" if verb != "read" else None,
        )


def cancel(job: SlurmJob) -> None:
    """Ends a job: TERM to all of it, and KILL after the time that the cluster gives.

    Raises:
        StateError: it belongs to another user, or Slurm does not answer.
    """
    require_own(job, "cancel")
    remember(job.record, job.outcome)
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        _scancel(job)


def kill(job: SlurmJob) -> None:
    """Kills all of a job at once.

    Raises:
        StateError: it belongs to another user, or Slurm does not answer.
    """
    require_own(job, "kill")
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        with contextlib.suppress(client.SlurmError):  # one that waits has nothing to signal
            _scancel(job, "--signal=KILL", "--full")
        _scancel(job)


def delete(job: SlurmJob) -> None:
    """Ends a job and removes all that is kept of it.

    Raises:
        StateError: it belongs to another user, does not end, or its folder is not its own.
    """
    require_own(job, "delete")
    cancel(job)
    end = time.monotonic() + LONGEST_END
    app_id = f"{job.record.job_id}@{job.record.token}"
    while (now := find(app_id)) is not None and not _is_over(now):
        if time.monotonic() > end:
            raise StateError(
                f"job {job.record.job_id} has not ended after {LONGEST_END:.0f} s", hint="try it again later"
            )
        time.sleep(LOOK)
    Records().remove(job.record)
    remove_folder(job.record)


def _is_over(job: SlurmJob) -> bool:
    """Returns True if a job has ended, or nothing of it is known and nothing of it lives."""
    state = job.outcome.state
    lives = any(part.state in LIVE for part in job.queue)
    return is_terminal(state) or (state is AppState.UNKNOWN and not lives)


def _mark(record: SlurmRecord) -> None:
    if record.folder and not distrusted(record.paths.folder, record.token):
        with contextlib.suppress(OSError):
            write(record.paths.cancelled, "")


def _scancel(job: SlurmJob, *options: str) -> None:
    """Signals a job, also one that squeue does not tell of yet, but never another that has its number now."""
    if job.lost:
        return
    try:
        client.call(["scancel", *options, str(job.record.job_id)])
    except client.NoAnswerError:
        raise
    except client.SlurmError as error:
        if "nvalid job" not in error.said and "already complet" not in error.said:
            raise
