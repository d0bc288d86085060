"""Searches for patterns of users within a limit of time, since some patterns take practically forever.

Jobs of Slurm run a copy of this file on their nodes, with any Python 3.
"""

import contextlib
import os
import signal
import threading
import warnings
from typing import Callable, Iterable, Iterator, TypeVar

T = TypeVar("T")

MOST_CPU = 1.0
"""Seconds of processor time for one search."""


class SearchTooLongError(Exception):
    """The search for a pattern has taken :data:`MOST_CPU`."""


@contextlib.contextmanager
def limited_cpu() -> Iterator[None]:
    """Interrupts a search in the main thread; the module ``re`` handles signals while it searches.

    Another thread is not interrupted: only the main thread handles signals.

    Raises:
        SearchTooLongError: the limit was reached.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)


def any_matches(search: Callable[[T], object], texts: Iterable[T]) -> bool:
    """Returns True if a pattern is found in one of the texts, for processes that must not be blocked.

    Outside of the main thread a child process searches, so the limit holds there, too. That takes about a
    millisecond: call it for many lines together.

    Args:
        search: the method ``search`` of the pattern.
        texts: the texts.

    Raises:
        SearchTooLongError: the limit was reached.
    """
    if threading.current_thread() is not threading.main_thread():
        return _in_child(search, texts)
    with limited_cpu():
        return any(map(search, texts))


def _in_child(search: Callable[[T], object], texts: Iterable[T]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: the child starts none
        child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
            signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU)  # the signal ends the child
            code = 0 if any(map(search, texts)) else 1
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if not os.WIFEXITED(status) or os.WEXITSTATUS(status) > 1:
        raise SearchTooLongError
    return os.WEXITSTATUS(status) == 0


def _stop(number: int, frame: object) -> None:
    raise SearchTooLongError
