"""Reactions of a supervisor to stalls: records, notifications, reports, and requested actions."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torchx.end_causes import EndCause, Reason
from torchx.json_limits import Data
from torchx.machine import files, processes
from torchx.machine.processes import Process
from torchx.scheduling.stalls import StallRule, brief
from torchx.supervisor.stalls import Stall, StallWatch, describe

REPORT_WITHIN = 30.0
"""Maximum seconds for which an action waits for the report about the stall."""


MOST_NAMED = 1000
"""The most replicas that the record of a stall names."""


class DueAction(NamedTuple):
    """An action that is to be carried out now.

    Attributes:
        name: restart or cancel.
        replicas: the ordinals of the replicas that are stalled now.
        why: the reason, a few words.
    """

    name: str
    replicas: tuple[int, ...]
    why: str


class Stalls:
    """Detects stalls of an application, and reports them.

    Args:
        rule: its rule; None for an application that requests no detection.
        heartbeats: the file for the heartbeats of its replicas.
        names: its replicas as ``role/id``, by ordinal.
        note: records an event with its details.
        now: returns the time of the record's clock.
        report: starts the process that writes the report; None if it cannot be started.
        notify: sends the notification.
        abort: ends processes whose stacks the report lacks so that they print them, before an action.
    """

    def __init__(
        self,
        rule: StallRule | None,
        heartbeats: Path,
        names: Sequence[str],
        note: Callable[..., None],
        now: Callable[[], float],
        report: Callable[[], Process | None],
        notify: Callable[[], None] = lambda: None,
        abort: Callable[[DueAction], None] = lambda due: None,
    ) -> None:
        self._rule, self._names, self._note, self._now = rule, names, note, now
        self._start_report, self._notify, self._abort = report, notify, abort
        self._reporter: Process | None = None
        self._lacks_stacks = False
        self._again = False  # whether a further stall began while the report about one was written
        self._waiting: tuple[Stall, float] | None = None  # a stall whose action waits for the report
        self._restarted: dict[int, Reason] = {}
        if rule is None:
            self.watch = None
        else:
            self.watch = StallWatch(rule, heartbeats, len(names))

    def started(self, ordinal: int, since: float | None = None) -> None:
        """Handles the start of an attempt; see :meth:`StallWatch.started`."""
        if self.watch is not None:
            self.watch.started(ordinal, since)

    def ended(self, ordinal: int) -> Reason | None:
        """Handles the end of an attempt; returns the reason if it was ended as it was stalled."""
        if self.watch is not None:
            self.watch.ended(ordinal)
        return self._restarted.pop(ordinal, None)

    @property
    def reporter(self) -> int | None:
        """The pid of the process that writes the report, which the caller reaps."""
        if self._reporter is None:
            return None
        return self._reporter.pid

    def reaped(self, pid: int, status: int) -> bool:
        """Handles the end of a child; returns True if it was a reporter.

        Args:
            pid: the child.
            status: its wait status.
        """
        if self._reporter is None or self._reporter.pid != pid:
            return False
        self._reporter, self._lacks_stacks = None, status != 0
        if self._again:
            self._write_report()
        return True

    def pause(self) -> float | None:
        """Returns the seconds until the next check, None without one."""
        if self.watch is None or (wait := self.watch.pause()) is None:
            return None
        if self._waiting is not None:
            wait = min(wait, max(self._waiting[1] - time.monotonic(), 0.0))
        return wait

    def due_action(self) -> DueAction | None:
        """Checks for stalls and reports a new one; returns a due action."""
        if self.watch is None or self._rule is None:
            return None
        was_stalled = self.watch.stalled
        if self._waiting is not None:
            self.watch.refresh()
        stall = self.watch.check()
        if was_stalled and not self.watch.stalled:
            self._note("progress")
            self._waiting = None
        if stall is not None:
            self._record(stall)
            if self._rule.action != "report":
                self._waiting = (stall, time.monotonic() + REPORT_WITHIN)
            else:
                self._waiting = None
        if self._waiting is None or (self._reporter is not None and time.monotonic() < self._waiting[1]):
            return None
        stall, self._waiting = self._waiting[0], None
        why = f"stalled for {brief(stall.seconds)}"
        stalled = self.watch.stalled  # some may have resumed, or stalled since
        if self._rule.action == "restart":
            self._restarted.update(dict.fromkeys(stalled, Reason(why, EndCause.STALLED)))
        due = DueAction(self._rule.action, stalled, why)
        if self._lacks_stacks:
            self._abort(due)
        return due

    def _record(self, stall: Stall) -> None:
        """Records a stall, sends the notification, and starts the report."""
        names = [self._names[ordinal] for ordinal in stall.replicas]
        lacks = "output"
        if self._rule is not None and self._rule.progress:
            lacks = "progress"
        text = describe(stall, lacks)
        others = ""
        if names[1:]:
            others = f" and {len(names) - 1} more"
        self._note(
            "stalled",
            rs=stall.replicas[:MOST_NAMED],
            msg=f"{names[0]}{others}: {text}",
            text=text,
            since=round(self._now() - stall.seconds, 3),
            step=stall.step,
        )
        self._notify()
        self._write_report()

    def _write_report(self) -> None:
        self._again = self._reporter is not None
        if not self._again:
            self._reporter = self._start_report()

    def close(self) -> None:
        """Releases the memory for heartbeats."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def start_logged(argv: Sequence[str], log: Path) -> Process | None:
    """Starts a program with its error output in a file; returns None if it cannot be started."""
    with contextlib.suppress(OSError):
        descriptor = files.open_file(log, files.APPEND)
        try:
            return processes.spawn(argv, stderr=descriptor)
        finally:
            os.close(descriptor)
    return None


def rule_of(cfg: Data) -> StallRule | None:
    """Returns the rule in recorded run options; None without one, or if they are damaged."""
    try:
        return StallRule.of(cfg)
    except ValueError:
        return None
