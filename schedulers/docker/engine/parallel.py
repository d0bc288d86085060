"""Concurrent calls to an engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from torchx.machine import threads

AT_A_TIME = 32

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R | Exception]:
    """Calls a function with each item in parallel, and returns the results or errors in order."""
    work = deque(enumerate(items))
    count = len(work)
    results: dict[int, R | Exception] = {}

    def run() -> None:
        while True:
            try:
                number, item = work.popleft()
            except IndexError:
                return
            try:
                results[number] = function(item)
            except Exception as error:
                results[number] = error

    helpers = [threads.begin(run) for _ in range(min(AT_A_TIME, count) - 1)]
    try:
        run()
    finally:
        work.clear()  # after an interrupt, the other threads start no further calls
        for thread in filter(None, helpers):
            thread.join()
    return [results[number] for number in range(count)]


def all_of(results: Iterable[R | Exception]) -> list[R]:
    """Returns the results, or raises the first error among them."""
    done: list[R] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        done.append(result)
    return done
