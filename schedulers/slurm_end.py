"""The end of a job: waited for, or brought about."""

from __future__ import annotations

import contextlib
import shutil
import time

from torchx.errors import StateError
from torchx.schedulers import slurm_client as client
from torchx.schedulers.slurm_jobs import SlurmJob, find
from torchx.schedulers.slurm_record import Records, SlurmRecord, is_there
from torchx.schedulers.slurm_states import read_over
from torchx.specs.status import is_terminal

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
        return job is None or is_terminal(job.outcome.state)

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the job has ended; False when so many seconds passed before."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            left = LOOK if end is None else min(LOOK, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True


def cancel(job: SlurmJob) -> None:
    """Ends a job: TERM to all of it, and KILL after the time that the cluster gives."""
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        _scancel(job)


def kill(job: SlurmJob) -> None:
    """Kills all of a job at once."""
    if not is_terminal(job.outcome.state):
        _mark(job.record)
        with contextlib.suppress(client.SlurmError):  # one that waits has nothing to signal
            _scancel(job, "--signal=KILL", "--full")
        _scancel(job)


def delete(job: SlurmJob) -> None:
    """Ends a job and removes all that is kept of it.

    Raises:
        StateError: it does not end.
    """
    cancel(job)
    end = time.monotonic() + LONGEST_END
    app_id = f"{job.record.job_id}@{job.record.token}"
    while (now := find(app_id)) is not None and not is_terminal(now.outcome.state):
        if time.monotonic() > end:
            raise StateError(
                f"job {job.record.job_id} has not ended after {LONGEST_END:.0f} s", hint="try it again later"
            )
        time.sleep(LOOK)
    Records().remove(job.record)
    for _ in range(20):  # what a node is still writing comes in between
        shutil.rmtree(job.record.paths.folder, ignore_errors=True)
        if not is_there(job.record.paths.folder):
            break
        time.sleep(LOOK)


def _mark(record: SlurmRecord) -> None:
    with contextlib.suppress(OSError):
        record.paths.cancelled.touch(mode=0o600)


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
