"""Searches for patterns of users within a limit of time, since some patterns take practically forever.

Jobs of Slurm run a copy of this file on their nodes, with any Python 3.
"""

import contextlib
import os
import signal
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Hashable, Iterable, Iterator, TypeVar

T = TypeVar("T")
R = TypeVar("R")

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
        return bool(_Child(lambda each: any(map(search, texts))).search(None))
    with limited_cpu():
        return any(map(search, texts))


_children = threading.local()  # by the keys of their searches


def in_time(key: Hashable, search: Callable[[T], R], data: T) -> R:
    """Returns the result of a search, which is interrupted at the limit in any thread.

    Outside of the main thread a child process searches. It is kept for further searches of its thread.

    Args:
        key: the searches of equal keys are equal functions.
        search: the function.
        data: its argument.

    Raises:
        SearchTooLongError: the limit was reached.
    """
    if threading.current_thread() is threading.main_thread():
        with limited_cpu():
            return search(data)
    children: Dict[Any, _Child] = _children.__dict__
    child = children.pop(key, None) or _Child(search)
    result: R = child.search(data)
    children[key] = child  # unless the search has failed
    return result


class _Child:
    """A process that makes searches; it ends with this object, and with its parent."""

    def __init__(self, search: Callable[[T], object]) -> None:
        from multiprocessing.connection import Pipe  # here: few commands search in threads

        self._pipe, theirs = Pipe()
        pid = _fork()
        if pid == 0:
            try:
                os.setsid()  # else Ctrl-C ends the search
                os.closerange(3, theirs.fileno())  # locks of the parent, and its end of the pair
                os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
                while True:
                    data = theirs.recv()
                    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU)  # the signal ends the child
                    found = search(data)
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                    theirs.send(found)
            finally:
                os._exit(0)
        theirs.close()
        weakref.finalize(self, _end, self._pipe, pid)

    def search(self, data: object) -> Any:
        try:
            self._pipe.send(data)
            return self._pipe.recv()
        except (EOFError, OSError):
            raise SearchTooLongError from None


def _end(pipe: Any, pid: int) -> None:
    with contextlib.suppress(OSError):
        pipe.close()
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: the child starts none
        return os.fork()


def _stop(number: int, frame: object) -> None:
    raise SearchTooLongError
