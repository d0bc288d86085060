"""The pace at which commands that wait query an engine, and the answers that their parts share."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

NEARBY = 0.5
"""Seconds between two queries of an engine of this machine."""

FIRST, LONGEST = 1.0, 15.0
"""Seconds between two queries of an engine that is reached over a network: at first, and later."""

EARLY = 0.5
"""Seconds by which a query may come early, so that parts of equal pace do not miss each other's answers."""

WAITING = 4 * LONGEST
"""Seconds after the last query about an application for which others are about it, too."""

ALL = ""
"""The key of all applications of this user."""

BURST, REFILL = 4, 0.5
"""Number of queries without a pause, and seconds per query in the long run, if many applications end."""

T = TypeVar("T")
_since: ContextVar[float | None] = ContextVar("since", default=None)
_together: ContextVar[bool] = ContextVar("together", default=False)


def deadline(timeout: float | None) -> float:
    """Returns the time on the monotonic clock at which a timeout ends; infinity without one."""
    if timeout is None:
        return math.inf
    return time.monotonic() + timeout


def seconds_left(end: float) -> float | None:
    """Returns the seconds until a :func:`deadline`, at least 0; None without one."""
    if end == math.inf:
        return None
    return max(0.0, end - time.monotonic())


def pause_after(waited: float, *, nearby: bool = False, first: float = FIRST) -> float:
    """Returns the seconds until the next query of an engine: the longest pause after half a minute.

    Args:
        waited: the seconds since the first query.
        nearby: the engine is on this machine.
        first: the seconds of the first pause.

    >>> [pause_after(waited) for waited in (0.0, 1.0, 10.0, 28.0, 3600.0)]
    [1.0, 1.5, 6.0, 15.0, 15.0]
    >>> pause_after(3600.0, nearby=True)
    0.5
    """
    if nearby:
        return NEARBY
    return min(first + waited / 2, LONGEST)


@contextmanager
def sharing(since: float = 0.0) -> Iterator[None]:
    """Within it, a query of an engine may return an answer that another part of this process got just before.

    For parts that wait, and query again. Of threads, those of :mod:`torchx.machine.threads` inherit it.

    Args:
        since: the earliest time of an answer, by ``time.monotonic()``.
    """
    before = _since.set(since)
    try:
        yield
    finally:
        _since.reset(before)


@contextmanager
def together(count: int) -> Iterator[None]:
    """Within it, one query answers for all of several applications, which are looked up one after another.

    Args:
        count: the number of applications; one application is queried alone.
    """
    if count < 2:
        yield
        return
    with sharing(time.monotonic()):
        before = _together.set(True)
        try:
            yield
        finally:
            _together.reset(before)


@contextmanager
def alone() -> Iterator[None]:
    """Within it, each query reads the engine, also inside :func:`sharing`: a change depends on the answer."""
    before = _since.set(None)
    try:
        yield
    finally:
        _since.reset(before)


def is_sharing() -> bool:
    """Returns True within :func:`sharing`."""
    return _since.get() is not None


def is_together() -> bool:
    """Returns True within :func:`together`."""
    return _together.get()


class Answers(Generic[T]):
    """The last answers of an engine; those that all parts of this process wait for come from one query.

    Args:
        query: returns the answers about some applications, perhaps also about others, by their keys; about
            all with the key :data:`ALL`.
        complete: an application that is not in the answer about all does not exist.
        nearby: the engine is on this machine: only answers to parts that begin together are shared.
    """

    def __init__(
        self,
        query: Callable[[Collection[str]], Mapping[str, T]],
        *,
        complete: bool = False,
        nearby: bool = False,
    ) -> None:
        self._query, self._complete, self._nearby = query, complete, nearby
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}  # the time of the last request about each
        self._asked: Collection[str] = frozenset()
        self._found: Mapping[str, T] = {}
        self._error: Exception | None = None
        self._at = self._begun = -WAITING
        self._next = 0.0
        self._recent: deque[float] = deque([-WAITING] * BURST, BURST)  # the times of the last queries

    def restart(self) -> None:
        """Begins again with short pauses: a change is near."""
        with self._lock:
            self._at = -WAITING

    def about(self, key: str) -> T | None:
        """Returns the answer about an application; None without one.

        Raises:
            Exception: the error of the query.
        """
        since = _since.get()
        if since is None or (self._nearby and not since):
            return self._query([key]).get(key)
        with self._lock:
            now = time.monotonic()
            if is_together():
                self._wanted[ALL] = now
            if not self._knows(key) or self._at < since or self._is_old(now):
                self._wanted = {each: at for each, at in self._wanted.items() if now - at < WAITING}
                self._wanted[key] = now
                self._renew()
            self._wanted[key] = now
            if self._error is not None:
                raise self._error.with_traceback(None)  # each raise would add to it
            return self._found.get(key)

    def _knows(self, key: str) -> bool:
        if key in self._asked or key in self._found:
            return True
        return self._complete and is_together() and ALL in self._asked

    def _is_old(self, now: float) -> bool:
        """Returns True if the answers are too old for parts that wait."""
        if is_together():
            return False
        if self._nearby:
            return now >= self._next
        return now >= self._next - EARLY or now - self._at >= WAITING

    def _renew(self) -> None:
        if not self._nearby:
            time.sleep(max(self._recent[0] + BURST * REFILL - time.monotonic(), 0.0))
        now = time.monotonic()
        self._recent.append(now)
        begun = self._begun
        if now - self._at >= WAITING:
            begun = now
        keys, found, error = frozenset(self._wanted), dict[str, T](), None
        try:
            found.update(self._query(keys))
        except Exception as failed:  # of all parts
            error = failed
        # not before: an interrupted query is no answer
        self._asked, self._found, self._error = keys, found, error
        self._at, self._begun, self._next = now, begun, now + pause_after(now - begun, nearby=self._nearby)
