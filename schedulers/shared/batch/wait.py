"""Watch for the end of a job, by its files and the answers of its engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torchx.machine.outage import MAX_OUTAGE, Outage
from torchx.schedulers.shared.batch.outcome import save_outcome
from torchx.schedulers.shared.batch.paths import path_exists
from torchx.schedulers.shared.batch.progress import ScriptEnd, read_script_end
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.scheduling.pace import Answers, deadline, pause_after, sharing
from torchx.specs.status import is_terminal

POLL_INTERVAL = 0.1
"""Seconds between checks of the job's files."""


class Watch:
    """Watches for the end of a job; all watches of a process share their queries of the engine.

    Args:
        record: the record of the job.
        answers: the shared answers of the engine.
        find: returns a job by its id, None if it is unknown.
    """

    def __init__(
        self,
        record: BatchRecord,
        answers: Answers[Any],
        find: Callable[[str], Any],
    ) -> None:
        self._record, self._answers, self._find = record, answers, find
        self._begun = self._next = self._since = time.monotonic()
        self._ended = False
        self._earlier: ScriptEnd | None = None  # the end of a run before the current one
        self._markers = 0
        self._outage = Outage(MAX_OUTAGE)

    def has_ended(self) -> bool:
        """Returns True if the job has ended; checks its files, and at growing intervals the engine.

        Raises:
            StateError: the engine has not responded for MAX_OUTAGE seconds.
        """
        if self._ended:
            return True
        end = read_script_end(self._record.paths)
        now = time.monotonic()
        paths = self._record.paths
        markers = path_exists(paths.cancelled) + path_exists(paths.stopped)
        if markers != self._markers:  # the job is about to end
            self._markers, self._begun, self._next = markers, now, now
            self._answers.restart()
        if end not in (None, self._earlier):
            self._next = self._since = now
        if now >= self._next:
            self._ended = self._query()
            self._next = now + pause_after(now - self._begun)
            self._earlier = end  # unless the job has ended, it was started again
        return self._ended

    def _query(self) -> bool:
        ended = False
        with self._outage.bridged(), sharing(self._since):
            job = self._find(self._record.full_id)
            ended = job is None or is_terminal(job.outcome.state)
            if job is not None:
                save_outcome(job.record, job.outcome)
        return ended

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the job has ended; returns False on timeout."""
        end = deadline(timeout)
        while not self.has_ended():
            left = min(POLL_INTERVAL, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True
