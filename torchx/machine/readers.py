"""Reads iterators in threads, so that the reader of their items can do something else meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

STOPPED_WITHIN = 0.2
"""Maximum seconds until a thread with a full queue notices that its item is not needed."""


class Readers(Generic[T]):
    """The items of several iterators, each of which is read in a thread; a context manager.

    Args:
        most: the maximum number of items that are read ahead.

    Attributes:
        reading: the number of iterators that have not ended.
    """

    def __init__(self, most: int) -> None:
        self._items: queue.Queue[T | BaseException | None] = queue.Queue(most)
        self._stop = threading.Event()
        self.reading = 0

    def __enter__(self) -> Readers[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()

    def add(self, items: Iterable[T], name: str = "log") -> None:
        """Reads an iterator, too.

        Args:
            items: the iterator.
            name: the name of its thread.
        """
        self.reading += 1
        threading.Thread(target=self._read, args=(items,), daemon=True, name=name).start()

    def get(self, timeout: float | None = None) -> T | None:
        """Returns the next item; None at the end of an iterator, or after the time.

        Args:
            timeout: maximum seconds to wait.

        Raises:
            Exception: the error of an iterator.
        """
        try:
            item = self._items.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(item, BaseException):
            raise item
        if item is None:
            self.reading -= 1
        return item

    def _read(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                if not self._put(item):
                    return
            self._put(None)
        except Exception as error:  # raised by `get`
            self._put(error)

    def _put(self, item: T | BaseException | None) -> bool:
        """Adds an item; returns False if it is not needed any more."""
        while not self._stop.is_set():
            try:
                self._items.put(item, timeout=STOPPED_WITHIN)
            except queue.Full:
                continue
            return True
        return False
