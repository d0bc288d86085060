"""Events of applications: recorded ones, and those that follow."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import TorchxError
from torchx.machine.outage import Outage
from torchx.runner.changes import changes
from torchx.scheduling.base import (
    DescribeAppResponse,
    ListAppResponse,
    Measures,
    Reports,
)
from torchx.scheduling.events import AppEvent
from torchx.scheduling.pace import pause_after, sharing
from torchx.scheduling.query import AppQuery
from torchx.specs.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx.runner.host import Host

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.2
"""Seconds between two reads of event logs while following; doubled as long as nothing happens."""

RECONCILE_INTERVAL = 2.0
"""Seconds without an event after which an application is brought to its due state."""

FILES_INTERVAL, ATTEMPTS_PER_SECOND = 2.0, 50
"""Minimum seconds between two reads of the attempts that replicas record, and how many a second are read."""

DISCOVERY_INTERVAL = 1.0
"""Seconds between two searches for new applications."""

CLOCK_SKEW = timedelta(minutes=5)
"""Maximum difference between the clocks of an engine and this machine, to find new applications."""

_BY_TIME = attrgetter("time")


class EventQuery(NamedTuple):
    """A filter of events.

    Attributes:
        follow: continue until the application has ended; without one, until the caller stops.
        since: only events at or after this time.
        until: only events before this time.
        tail: only the last N recorded events, and those that follow; None for all.
    """

    follow: bool = False
    since: datetime | None = None
    until: datetime | None = None
    tail: int | None = None

    def takes(self, event: AppEvent) -> bool:
        """Returns True if an event is in the time range."""
        return (self.since is None or event.time >= self.since) and (
            self.until is None or event.time < self.until
        )


class Feed:
    """The events of one application.

    Args:
        runner: used to query its scheduler.
        handle: the application.

    Attributes:
        ended: whether no event follows.
        outage: the time for which its engine has not answered.
    """

    def __init__(self, runner: Host, handle: str) -> None:
        self._runner, self._handle = runner, handle
        self._scheduler = runner.scheduler_of(handle)
        self._polls = not isinstance(self._scheduler, Reports)
        self._nearby = self._scheduler.is_nearby(parse_app_handle(handle).app_id)
        self._read = self._attempts = 0  # the number of events that were returned, and of known attempts
        self._last: DescribeAppResponse | None = None
        self._error: Exception | None = None
        self.outage = Outage()
        self._next, self._since, self._begun = 0.0, 0.0, time.monotonic()
        self._changed = self._begun
        self._source = self._open()
        self.ended = False

    def _open(self) -> Iterator[AppEvent | None]:
        """Returns the events that were not returned yet."""
        app_id = parse_app_handle(self._handle).app_id
        source: Iterator[AppEvent | None]
        if isinstance(self._scheduler, Reports):
            source = iter(self._scheduler.app_events(app_id))
        else:
            peak = None
            if isinstance(self._scheduler, Measures):
                peak = partial(self._scheduler.usage, app_id)
            source = changes(self._describe, peak)
        known = self._read
        for event in source:
            if event is not None and known and event.kind != "waiting":
                known -= 1
            else:
                yield event

    def _describe(self) -> DescribeAppResponse | None:
        """Returns the description; after an error, which :meth:`read` raises, that of the last query."""
        try:
            with sharing(self._since):
                self._last = self._runner.description(self._handle, brief=True)
        except (TorchxError, OSError) as error:
            if self._last is None:
                raise
            self._error = error
        if self._last is not None:
            self._attempts = sum(len(replica.attempts) for replica in self._last.replicas)
        return self._last

    def read_again_later(self) -> None:
        """Handles an error of :meth:`read`: a later call continues after the events that were returned."""
        if not self._polls or self._last is None:
            self._source = self._open()
        self._next = time.monotonic() + max(RECONCILE_INTERVAL, self._pace())

    def _pace(self) -> float:
        if self._scheduler.records_attempts and self._attempts:
            return max(FILES_INTERVAL, self._attempts / ATTEMPTS_PER_SECOND)
        return pause_after(time.monotonic() - self._begun, nearby=self._nearby)

    def read(self, *, now: bool = False) -> list[AppEvent]:
        """Returns the events up to the current end.

        Args:
            now: query the engine also before it is due.
        """
        begun = time.monotonic()
        self._since = begun if now else 0.0
        if self.ended or (begun < self._next and not now):
            return []
        events = list(self._new())
        self._read += sum(event.kind != "waiting" for event in events)  # which is not recorded
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._polls:
            self._next = time.monotonic() + self._pace()
        elif events:
            self._changed = begun
        elif begun > self._changed + RECONCILE_INTERVAL:
            self._changed = begun
            self.ended = self.ended or self._runner.description(self._handle, brief=True) is None
        return events

    def _new(self) -> Iterator[AppEvent]:
        for event in self._source:
            if event is None:
                return
            yield replace(event, app_handle=self._handle)
            if event.is_last:
                break
        self.ended = True


def of_application(runner: Host, handle: str, query: EventQuery) -> Iterator[AppEvent]:
    """Yields the events of an application in order."""
    feed = Feed(runner, handle)
    recorded = [event for event in feed.read() if query.takes(event)]
    yield from recorded if query.tail is None else recorded[max(len(recorded) - query.tail, 0) :]
    if query.follow:
        yield from _follow({handle: feed}, query)


def of_schedulers(runner: Host, schedulers: Sequence[str], query: EventQuery) -> Iterator[AppEvent]:
    """Yields the events of all of the caller's applications of some schedulers, merged by time."""
    started = datetime.now(timezone.utc)
    rows = _rows(runner, schedulers, AppQuery())
    known = {row.app_handle for row in rows}
    feeds: dict[str, Feed] = {}
    newest: list[tuple[datetime, int]] = []  # the latest events so far: time, place
    recorded: list[AppEvent] = []
    latest = datetime.max.replace(tzinfo=timezone.utc)
    for row in sorted(rows, key=lambda row: row.ended_at or latest, reverse=True):
        least = query.since
        if query.tail is not None and len(newest) >= query.tail > 0:
            least = newest[0][0]
        if row.ended_at is not None and least is not None and row.ended_at < least:
            break  # these and all further applications have only earlier events
        for event in _open(runner, row.app_handle, feeds):
            if query.takes(event):
                recorded.append(event)
                heapq.heappush(newest, (event.time, len(recorded)))
                if query.tail is not None and len(newest) > query.tail:
                    heapq.heappop(newest)
    recorded.sort(key=_BY_TIME)
    yield from recorded if query.tail is None else recorded[max(len(recorded) - query.tail, 0) :]
    if query.follow:
        search = _Search(runner, schedulers, known, started)
        yield from _follow(feeds, query, search)


def _rows(runner: Host, schedulers: Sequence[str], query: AppQuery) -> list[ListAppResponse]:
    return [row for name in schedulers for row in runner.select(name, query) if row.is_own]


def _open(runner: Host, handle: str, feeds: dict[str, Feed]) -> list[AppEvent]:
    """Returns the events of an application; adds its feed unless it has ended."""
    with suppress(TorchxError, OSError):  # a damaged record, which `list` reports, must not hide the others
        feed = Feed(runner, handle)
        events = feed.read()
        if not feed.ended:
            feeds[handle] = feed
        return events
    return []


class _Search:
    """Finds new applications.

    Args:
        runner: used to query the schedulers.
        schedulers: their names.
        known: the handles of known applications.
        since: the start of the search.
    """

    def __init__(self, runner: Host, schedulers: Sequence[str], known: set[str], since: datetime) -> None:
        self._runner, self._schedulers, self._known = runner, schedulers, known
        self._query = AppQuery(since=since - CLOCK_SKEW)
        self._nearby = all(runner.scheduler(name).on_this_machine for name in schedulers)
        self._next, self._since, self._begun = 0.0, 0.0, time.monotonic()

    def run(self, feeds: dict[str, Feed]) -> list[AppEvent]:
        """Returns the events of new applications, and adds their feeds, unless the last search was recent."""
        if time.monotonic() < self._next:
            return []
        events: list[AppEvent] = []
        with suppress(TorchxError, OSError), sharing():  # the next search may succeed
            for row in _rows(self._runner, self._schedulers, self._query):
                if row.app_handle not in self._known:
                    self._known.add(row.app_handle)
                    events += _open(self._runner, row.app_handle, feeds)
        now = time.monotonic()
        self._next = now + (DISCOVERY_INTERVAL if self._nearby else pause_after(now - self._begun))
        return events


def read_new(feed: Feed, *, others: bool, now: bool = False) -> list[AppEvent]:
    """Returns the new events of an application.

    Args:
        feed: its events.
        now: see :meth:`Feed.read`.
        others: suppress errors: they must not hide other output.
    """
    try:
        with feed.outage.bridged():
            return feed.read(now=now)
    except (TorchxError, OSError):
        if not others:
            raise
    feed.read_again_later()
    return []


def _follow(feeds: dict[str, Feed], query: EventQuery, search: _Search | None = None) -> Iterator[AppEvent]:
    """Yields new events as they happen; returns when all applications have ended, unless it searches more."""
    pause = FIRST_PAUSE
    while True:
        over = query.until is not None and datetime.now(timezone.utc) >= query.until
        events = [event for feed in feeds.values() for event in read_new(feed, others=search is not None)]
        if search is not None:
            events += search.run(feeds)
        yield from sorted(filter(query.takes, events), key=_BY_TIME)
        for handle in [handle for handle, feed in feeds.items() if feed.ended]:
            del feeds[handle]
        if over or (search is None and not feeds):
            return
        if events:
            pause = FIRST_PAUSE
        else:
            pause = min(2 * pause, LONGEST_PAUSE)
        time.sleep(pause)
