"""Wait for the end of a job."""

from __future__ import annotations

import time

from torchx.machine.outage import Outage
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.folders.progress import read_script_end
from torchx.schedulers.slurm.outcome import save_outcome
from torchx.schedulers.slurm.paths import path_exists
from torchx.schedulers.slurm.queue import find
from torchx.schedulers.slurm.record import SlurmRecord
from torchx.specs.status import is_terminal

POLL_INTERVAL = 0.1
"""Seconds between checks of the job's files."""
MIN_QUERY_INTERVAL, MAX_QUERY_INTERVAL = 1.0, 15.0
"""Seconds between queries to the controller; the interval grows to limit its load."""
MAX_OUTAGE = 60.0
"""Seconds without a response before an error is raised: a controller may be restarting."""


def wait(app_id: str, timeout: float | None) -> bool:
    """Blocks until a job has ended or is unknown; returns False on timeout."""
    job = find(app_id)
    return job is None or Watch(job.record).wait(timeout)


class Watch:
    """Watches for the end of a job.

    Args:
        record: the record of the job.
    """

    def __init__(self, record: SlurmRecord) -> None:
        self._app_id = f"{record.key}@{record.token}"
        self._record = record
        self._pause = MIN_QUERY_INTERVAL
        self._next = 0.0
        self._ended = False
        self._markers = 0
        self._outage = Outage(MAX_OUTAGE)

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
        try:
            job = find(self._app_id)
        except client.NoAnswerError:
            if self._outage.is_too_long():
                raise
            self._pause = MIN_QUERY_INTERVAL
            return False
        self._outage.over()
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
