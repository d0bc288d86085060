"""Reactions of a supervisor to stalls: records, notifications, reports, and requested actions."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from resource import struct_rusage

from torchx.end_causes import EndCause, Reason
from torchx.json_limits import Data, Object
from torchx.machine import files, processes
from torchx.machine.processes import Process
from torchx.printable import brief, few
from torchx.scheduling.stalls import StallRule
from torchx.supervisor.policies import Cancel, Fail, Interest, Order, Policy, R
from torchx.supervisor.stalls.detection import Stall, StallWatch, describe

REPORT_WITHIN = 30.0
"""Maximum seconds for which an action waits for the report about the stall."""

MOST_NAMED = 1000
"""The most replicas that the record of a stall names."""


class Stalls(Policy[R]):
    """Detects stalls of an application, and reports them.

    A supervisor adds the process that writes the report, and the last resort for stacks.

    Args:
        rule: its rule.
        heartbeats: the file for the heartbeats of its replicas.
        names: its replicas as ``role/id``, by ordinal.
        note: records an event with its details.
        now: returns the time of the record's clock.
    """

    def __init__(
        self,
        rule: StallRule,
        heartbeats: Path,
        names: Sequence[str],
        note: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        self.names = names
        self._rule, self._note, self._now = rule, note, now
        self._reporter: Process | None = None
        self._lacks_stacks = False
        self._again = False  # whether a further stall began while the report about one was written
        self._waiting: tuple[Stall, float] | None = None  # a stall whose action waits for the report
        self._watch = StallWatch(rule, heartbeats, len(names))

    def start_report(self) -> Process | None:
        """Starts the process that writes the report; returns None if it cannot be started."""
        raise NotImplementedError

    def notify(self) -> None:
        """Sends the notification of a stall."""

    def abort(self, order: Order, replicas: Sequence[int]) -> None:
        """Ends processes whose stacks the report lacks so that they print them, before an order.

        Args:
            order: the order.
            replicas: the ordinals of the stalled replicas.
        """

    def interest(self, ordinal: int) -> Interest:
        """Returns TIME, or LATER if only some of the output is progress."""
        if self._rule.progress:
            return Interest.LATER
        return Interest.TIME

    def variables(self, ordinal: int) -> Mapping[str, str]:
        """Returns the variable with the place of the heartbeats."""
        return self._watch.variables(ordinal)

    def started(self, replica: R) -> None:
        """Handles the start of an attempt; see :meth:`StallWatch.started`."""
        self._watch.started(replica.ordinal, replica.began)

    def output(self, ordinal: int, stream: int, data: bytes, at: float) -> None:
        """Handles output of a replica; see :meth:`StallWatch.output`."""
        self._watch.output(ordinal, stream, data, at)

    def ended(self, replica: R, usage: struct_rusage | None) -> Object:
        """Handles the end of an attempt."""
        self._watch.ended(replica.ordinal)
        return {}

    @property
    def reporter(self) -> int | None:
        """The pid of the process that writes the report."""
        if self._reporter is None:
            return None
        return self._reporter.pid

    def reaped(self, pid: int, status: int, usage: struct_rusage) -> bool:
        """Handles the end of a child; returns True if it was a reporter."""
        if self.reporter != pid:
            return False
        self._reporter, self._lacks_stacks = None, status != 0
        if self._again:
            self._write_report()
        return True

    def pause(self) -> float | None:
        """Returns the seconds until the next check, None without one."""
        wait = self._watch.pause()
        if wait is not None and self._waiting is not None:
            wait = min(wait, max(self._waiting[1] - time.monotonic(), 0.0))
        return wait

    def due(self) -> Sequence[Order]:
        """Checks for stalls and reports a new one; returns the requested reaction if it is due."""
        was_stalled = self._watch.stalled
        if self._waiting is not None:
            self._watch.refresh()
        stall = self._watch.check()
        if was_stalled and not self._watch.stalled:
            self._note("progress")
            self._waiting = None
        if stall is not None:
            self._record(stall)
            if self._rule.action != "report":
                self._waiting = (stall, time.monotonic() + REPORT_WITHIN)
            else:
                self._waiting = None
        if self._waiting is None or (self._reporter is not None and time.monotonic() < self._waiting[1]):
            return ()
        stall, self._waiting = self._waiting[0], None
        reason = Reason(f"stalled for {brief(stall.seconds)}", EndCause.STALLED)
        stalled = self._watch.stalled  # some may have resumed, or stalled since
        order: Order = Cancel(reason)
        if self._rule.action == "restart":
            order = Fail(stalled, reason)
        if self._lacks_stacks:
            self.abort(order, stalled)
        return [order]

    def _record(self, stall: Stall) -> None:
        """Records a stall, sends the notification, and starts the report."""
        names = [self.names[ordinal] for ordinal in stall.replicas]
        lacks = "output"
        if self._rule.progress:
            lacks = "progress"
        text = describe(stall, lacks)
        self._note(
            "stalled",
            rs=stall.replicas[:MOST_NAMED],
            msg=f"{few(names, 1)}: {text}",
            text=text,
            since=round(self._now() - stall.seconds, 3),
            step=stall.step,
        )
        self.notify()
        self._write_report()

    def _write_report(self) -> None:
        self._again = self._reporter is not None
        if not self._again:
            self._reporter = self.start_report()

    def close(self) -> None:
        """Releases the memory for heartbeats."""
        self._watch.close()


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
