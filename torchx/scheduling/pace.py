"""The pace at which commands that wait query an engine, and the answers that their parts share."""

from __future__ import annotations

import math
import threading
import time
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

T = TypeVar("T")
_since: ContextVar[float | None] = ContextVar("since", default=None)


def deadline(timeout: float | None) -> float:
    """Returns the time on the monotonic clock at which a timeout ends; infinity without one."""
    if timeout is None:
        return math.inf
    return time.monotonic() + timeout


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


def is_sharing() -> bool:
    """Returns True within :func:`sharing`."""
    return _since.get() is not None


class Answers(Generic[T]):
    """The last answers of an engine; those that all parts of this process wait for come from one query.

    Args:
        query: returns the answers about some applications, perhaps also about others, by their keys.
    """

    def __init__(self, query: Callable[[Collection[str]], Mapping[str, T]]) -> None:
        self._query = query
        self._lock = threading.Lock()
        self._wanted: dict[str, float] = {}  # the time of the last request about each
        self._asked: Collection[str] = frozenset()
        self._found: Mapping[str, T] = {}
        self._error: Exception | None = None
        self._at = self._begun = -WAITING
        self._next = 0.0

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
        if since is None:
            return self._query([key]).get(key)
        with self._lock:
            now = time.monotonic()
            known = key in self._asked or key in self._found
            if not known or self._at < since or now >= self._next - EARLY or now - self._at >= WAITING:
                self._wanted = {each: at for each, at in self._wanted.items() if now - at < WAITING}
                self._wanted[key] = now
                self._renew(now)
            self._wanted[key] = now
            if self._error is not None:
                raise self._error.with_traceback(None)  # each raise would add to it
            return self._found.get(key)

    def _renew(self, now: float) -> None:
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
        self._at, self._begun, self._next = now, begun, now + pause_after(now - begun)
