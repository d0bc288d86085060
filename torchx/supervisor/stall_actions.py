"""The supervisor's reactions to stalls: events, notifications, reports, and requested actions."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.machine import files, processes
from torchx.machine.processes import Process
from torchx.notifications import launch as notifications
from torchx.scheduling.stalls import StallRule, brief
from torchx.supervisor.process import python_command
from torchx.supervisor.replicas import Replicas
from torchx.supervisor.stalls import Stall, StallWatch, describe

REPORT_WITHIN = 30.0
"""Maximum seconds for which an action waits for the report about the stall."""

REPORTER = "torchx.supervisor.stall_report"


class Stalls:
    """Detects stalls of a job that requests it, and reports them.

    Args:
        record: the job.
        paths: its record.
        replicas: its replicas.
        note: appends to its events.
        now: returns the time of its clock.
    """

    def __init__(
        self,
        record: JobRecord,
        paths: JobPaths,
        replicas: Replicas,
        note: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        self._record, self._paths, self._replicas, self._note, self._now = record, paths, replicas, note, now
        self._watch: StallWatch | None = None
        self._rule = _rule_of(record)
        self._reporter: Process | None = None
        self._again = False  # whether a further stall began while the stacks of one were taken
        self._waiting: tuple[Stall, float] | None = None  # a stall whose action waits for the report
        self._restarted: dict[int, str] = {}
        if self._rule is not None:
            self._watch = StallWatch(self._rule, paths.heartbeats, len(replicas))
            replicas.on_output, replicas.variables = self._watch.output, self._watch.variables

    def started(self, ordinal: int) -> None:
        """Handles the start of an attempt."""
        if self._watch is not None:
            self._watch.started(ordinal)

    def ended(self, ordinal: int) -> str:
        """Handles the end of an attempt; returns the reason if it was ended as it was stalled."""
        if self._watch is not None:
            self._watch.ended(ordinal)
        return self._restarted.pop(ordinal, "")

    def reaped(self, pid: int) -> bool:
        """Handles the end of a child; returns True if it was a reporter."""
        if self._reporter is None or self._reporter.pid != pid:
            return False
        self._reporter = None
        if self._again:
            self._take_stacks()
        return True

    def pause(self) -> float | None:
        """Returns the seconds until the next check, None without one."""
        if self._watch is None or (wait := self._watch.pause()) is None:
            return None
        if self._waiting is not None:
            wait = min(wait, max(self._waiting[1] - time.monotonic(), 0.0))
        return wait

    def due_action(self) -> tuple[str, tuple[int, ...], str] | None:
        """Checks for stalls and reports a new one; returns a due action, its replicas, and its reason."""
        if self._watch is None or self._rule is None:
            return None
        was_stalled = self._watch.stalled
        if self._waiting is not None:
            self._watch.refresh()
        stall = self._watch.check()
        if was_stalled and not self._watch.stalled:
            self._note("progress")
            self._waiting = None
        if stall is not None:
            self._report(stall)
            self._waiting = (
                (stall, time.monotonic() + REPORT_WITHIN) if self._rule.action != "report" else None
            )
        if self._waiting is None or (self._reporter is not None and time.monotonic() < self._waiting[1]):
            return None
        stall, self._waiting = self._waiting[0], None
        why = f"stalled for {brief(stall.seconds)}"
        if self._rule.action == "restart":
            self._restarted.update(dict.fromkeys(self._watch.stalled, why))
        return self._rule.action, self._watch.stalled, why  # some may have resumed, or stalled since

    def _report(self, stall: Stall) -> None:
        """Records a stall, sends the notification, and starts the program that takes the stacks."""
        names = [self._replicas.label(ordinal) for ordinal in stall.replicas]
        message = describe(names, len(self._replicas), stall)
        facts = {"r": stall.replicas[0]} if len(names) == 1 < len(self._replicas) else {}
        self._note(
            "stalled", **facts, msg=message, since=round(self._now() - stall.seconds, 3), step=stall.step
        )
        notifications.start(self._paths, "stall")
        self._take_stacks()

    def _take_stacks(self) -> None:
        self._again = self._reporter is not None
        if self._again:
            return
        argv = python_command(REPORTER, [self._record.handle, self._record.log_dir])
        with contextlib.suppress(OSError):  # the stall is recorded all the same
            log = files.open_file(self._paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                self._reporter = processes.spawn(argv, stderr=log)
            finally:
                os.close(log)

    def close(self) -> None:
        """Releases the memory for heartbeats."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def _rule_of(record: JobRecord) -> StallRule | None:
    try:
        return StallRule.of(record.cfg)
    except ValueError:  # a damaged record: the job runs without
        return None
