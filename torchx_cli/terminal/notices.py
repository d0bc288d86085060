"""Dim lines about an application that a command follows: it waits, is retried, stalls or is slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from torchx.lazy import lazy_imports
from torchx.machine import threads
from torchx.printable import one_line
from torchx.scheduling.base import Reports
from torchx.specs.handles import parse_app_handle
from torchx_cli.terminal.times import duration, span
from torchx_cli.terminal.units import names_of

with lazy_imports:
    from torchx.runner import reports

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.events import AppEvent
    from torchx.specs.status import Member

PATIENCE = 0.5
"""Seconds before the first query and line."""

PAUSE = 0.2
"""Seconds between two reads of an event log; engines are queried at the pace of the feed."""

RARE_PAUSE = 2.0
"""Minimum seconds between two queries of an engine on this machine when replicas have started."""

LAST = 5.0
"""Maximum seconds for the events of the end."""

UNREADY = 10.0
"""Seconds after which a service that is not ready is reported."""

SCOPES = {"role": " of its role", "application": " of all replicas"}
"""The replicas that a retry starts again, if there are others than the failed one."""


class Follower:
    """Follows an application in a thread, which prints lines, until the context ends; a context manager.

    Attributes:
        stop: set at the end of the context; the lines of the end may still be printed.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._thread = threads.begin(self._run, name="follower")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.stop.set()
        if kind is None and self._thread is not None:
            self._thread.join(LAST)

    def _run(self) -> None:
        with suppress(Exception):  # the command itself reports the error
            self.follow()

    def follow(self) -> None:
        """Prints the lines."""
        raise NotImplementedError


class Notices(Follower):
    """Prints lines about an application.

    Args:
        runner: used to read the events.
        handle: the application.
        remark: prints lines, or those that wait; see :meth:`LogPrinter.remark`.
        notes: notes about the submission, which were printed before: a reason among them is not repeated.
        new: it was submitted now; otherwise events of before are left out.
    """

    def __init__(
        self,
        runner: Runner,
        handle: str,
        remark: Callable[..., None],
        notes: Collection[str] = (),
        *,
        new: bool,
    ) -> None:
        super().__init__()
        self._runner, self._handle, self._remark = runner, handle, remark
        self._notes = notes
        if new:
            self._since = None
        else:
            self._since = datetime.now(timezone.utc)
        self._waits_for, self._before_reasons = "", "waiting: "
        self._started: dict[str, AppEvent] = {}
        self._ended: dict[str, AppEvent] = {}
        self._unready: dict[str, float] = {}  # services: the time at which they are reported
        self._lock = threading.Lock()
        self._feed: reports.Feed | None = None
        self._waiting: list[AppEvent] = []
        self._may_wait = True
        self._caught_up_at = 0.0

    def catch_up(self, name: str, attempt: int) -> None:
        """Prints the lines about events that come before the output of a new attempt.

        Attempts that begin together share one query of the engine; a first one needs none.

        Args:
            name: the replica.
            attempt: its attempt, which may have ended by now.
        """
        is_due = attempt > 1 and time.monotonic() >= self._caught_up_at + RARE_PAUSE
        with suppress(Exception):  # the thread itself reads them later
            self._read(now=is_due, attempt=(name, attempt))
        if is_due:
            self._caught_up_at = time.monotonic()

    def _read(self, *, now: bool, attempt: tuple[str, int] | None = None) -> None:
        """Reads new events, and prints lines about earlier ones: output that came before is printed first.

        Args:
            now: query the engine also before it is due.
            attempt: print lines about all events before the start of this attempt of a replica.
        """
        with self._lock:
            if self._feed is None:
                return
            number = len(self._waiting)
            self._waiting += reports.read_new(self._feed, others=True, now=now)
            if attempt is not None:
                number = self._count_before(*attempt)
            events, self._waiting = self._waiting[:number], self._waiting[number:]
            lines = self.lines_of(event for event in events if self._may_wait or event.kind != "waiting")
            self._remark(*map(one_line, lines))

    def _count_before(self, name: str, attempt: int) -> int:
        """Returns the number of waiting events before the start of an attempt; all if it is unknown."""
        begun = self._started.get(name)
        if begun is not None and (begun.attempt or 0) >= attempt:
            return 0
        for at, event in enumerate(self._waiting):
            if (event.kind, f"{event.role}/{event.replica}", event.attempt) == ("started", name, attempt):
                return at + 1
        return len(self._waiting)

    def follow(self) -> None:
        """Prints lines about events; about none if the context ends within :data:`PATIENCE`."""
        if self.stop.wait(PATIENCE):
            return
        self._feed, last = reports.Feed(self._runner, self._handle), False
        scheduler = self._runner.scheduler_of(self._handle)
        if scheduler.waits_in_queue or scheduler.has_runs:
            self._before_reasons = ""  # reasons of torchx are clauses about what it waits for
        self._may_wait = scheduler.may_wait(parse_app_handle(self._handle).app_id)
        while not (self._feed.ended or last):
            last = self.stop.is_set()
            self._read(now=last)
            if scheduler.has_runs and self._started:
                return  # each of its runs is an application of its own
            is_queried = not isinstance(scheduler, Reports)
            self.stop.wait(RARE_PAUSE if is_queried and self._started else PAUSE)
        self._read(now=False)

    def lines_of(self, events: Iterable[AppEvent]) -> list[str]:
        """Returns the lines about events, and about services that are not ready in time."""
        lines: list[str] = []
        stalls: dict[str, list[Member]] = {}
        for event in events:
            line = self._line(event, f"{event.role}/{event.replica}")
            if self._since is not None and event.time < self._since and event.kind != "waiting":
                continue
            if event.kind == "stalled" and event.replica is not None:
                stalls.setdefault(line, []).append((event.role, event.replica))
            elif line:
                lines.append(line)
        lines += [f"{names_of(replicas)}: {message}" for message, replicas in stalls.items()]
        now = time.monotonic()
        for name in [name for name, due in self._unready.items() if now >= due]:
            del self._unready[name]
            lines.append(f"{name}: not ready for {UNREADY:g} s")
        return lines

    def _line(self, event: AppEvent, name: str) -> str:
        """Returns the line about an event; empty for most."""
        kind = event.kind
        line = ""
        if kind == "waiting" and event.message != self._waits_for:
            if self._waits_for or event.message not in self._notes:
                line = self._before_reasons + event.message
            self._waits_for = event.message
        elif kind == "started":
            self._started[name] = event
            if event.details.get("service"):
                self._unready[name] = time.monotonic() + UNREADY
        elif kind == "ready" and event.replica is None:
            self._unready.clear()
        elif kind in ("ready", "ended"):
            self._unready.pop(name, None)
            self._ended[name] = event
        elif kind == "retry":
            line = self._retry(event, name)
        elif kind == "requeued":
            line = f"requeued: {event.message}"
        elif kind in ("stalled", "straggler"):
            line = event.message
        return line

    def _end(self, event: AppEvent, name: str) -> str:
        """Returns the end of an attempt as text."""
        details, begun = event.details, self._started.get(name)
        text = str(details.get("signal") or f"exit {details.get('exit_code')}")
        if begun is not None and "time" not in {**begun.details, **details}:
            lasted = span(begun.time, event.time)
            if lasted is not None:
                text += f" after {duration(lasted)}"
        if "reason" in details:
            text += f" ({details['reason']})"
        return text

    def _retry(self, event: AppEvent, name: str) -> str:
        details = event.details
        again = event.message
        if "number" in details:
            again = f"attempt {details['number'] + 1} of {details['allowed'] + 1}"
        if len(self._started) > 1:
            again += SCOPES.get(details.get("scope", ""), "")
        if "delay" in details:
            again += f" in {details['delay']:g} s"
        if name not in self._ended:
            return f"{name} has ended; {again}"
        return f"{name} {self._end(self._ended[name], name)}; {again}"
