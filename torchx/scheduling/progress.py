"""Progress of long operations: reported in lines, or drawn where a terminal allows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torchx.machine import threads

PATIENCE = 0.4
"""Seconds before the first line; shorter operations report nothing."""

EVERY = 2.0
"""Seconds between two lines of the same operation."""

STILL = 10.0
"""Seconds after which an unchanged operation is reported again."""

MB = 1_000_000


@dataclass(frozen=True)
class Part:
    """A part of an operation, such as a layer of an image.

    Attributes:
        name: its name.
        status: its current action.
        done, total: bytes; 0 if unknown.
    """

    name: str
    status: str = ""
    done: int = 0
    total: int = 0

    @property
    def bytes(self) -> str:
        """The bytes in readable form; empty if unknown.

        >>> Part("x", "", 4_100_000, 31_000_000).bytes, Part("x", "", 0, 4_000).bytes, Part("x").bytes
        ('4.1 of 31.0 MB', '0.0 of 0.1 MB', '')
        """
        if not self.total:
            return ""
        total = max(self.total / MB, 0.1)
        places = 1 if total < 100 else 0
        return f"{min(self.done / MB, total):,.{places}f} of {total:,.{places}f} MB"


@dataclass(frozen=True)
class Progress:
    """The progress of an operation.

    Attributes:
        what: the operation, such as ``pulling python:3.12``.
        detail: the current step, such as ``step 2 of 3``.
        parts: its parts, in order.
        last: the last lines of its output.
    """

    what: str
    detail: str = ""
    parts: tuple[Part, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def bytes(self) -> str:
        """The bytes of all parts in readable form."""
        return Part("", "", sum(p.done for p in self.parts), sum(p.total for p in self.parts)).bytes

    @property
    def text(self) -> str:
        """One line.

        >>> Progress("pulling a:1", "1 of 2 layers", (Part("x", "", 4_000_000, 31_000_000), Part("y"))).text
        'pulling a:1, 1 of 2 layers, 4.0 of 31.0 MB'
        """
        return ", ".join(part for part in (self.what, self.detail, self.bytes) if part)


@runtime_checkable
class Follows(Protocol):
    """A receiver of lines that also follows ongoing operations."""

    def began(self, ongoing: Ongoing) -> bool:
        """Records the start of an operation; returns True if it is drawn, so that no lines are needed."""

    def ended(self, ongoing: Ongoing) -> None:
        """Records its end, successful or not."""


class Ongoing:
    """Context manager that reports a long operation until it ends.

    Quick operations report nothing. Others report a line within half a second, then one every few seconds
    and one at the end. A drawing receiver reads :attr:`now` at any time.

    Args:
        write: called with each line, from a separate thread; may implement :class:`Follows`.
        what: the operation, such as ``pulling python:3.12``.
        at_once: report immediately: the operation is known to be long.

    Attributes:
        now: its current progress.
        at_once: whether it is known to be long.
        began_at: its start, by :func:`time.monotonic`.
    """

    def __init__(self, write: Callable[[str], None], what: str, *, at_once: bool = False) -> None:
        self.now = Progress(what)
        self.began_at = time.monotonic()
        self._write, self.at_once = write, at_once
        follower: object = write
        self._follower = follower if isinstance(follower, Follows) else None
        self._drawn = False
        self._last_line = ""
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def seconds(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self.began_at

    def update(self, detail: str = "", parts: tuple[Part, ...] = (), last: tuple[str, ...] = ()) -> None:
        """Updates its progress."""
        self.now = Progress(self.now.what, detail, parts, last)

    def done(self, line: str) -> None:
        """Reports a final line unless the operation was quick."""
        self._finish()
        if self._last_line or self.seconds > PATIENCE:
            self._write(line)

    def __enter__(self) -> Ongoing:
        self._drawn = self._follower.began(self) if self._follower is not None else False
        if not self._drawn:
            if self.at_once:
                self._report(self.now.text)
            self._thread = threads.begin(self._report_lines, name="progress")
        return self

    def __exit__(self, *exception: object) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._end.is_set():
            return
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self._follower is not None:
            self._follower.ended(self)

    def _report_lines(self) -> None:
        pause, reported_at = (EVERY if self._last_line else PATIENCE), time.monotonic()
        while not self._end.wait(pause):
            text, now = self.now.text, time.monotonic()
            if text != self._last_line:
                self._report(text)
            elif now - reported_at >= STILL:
                self._write(f"{text}, since {self.seconds:.0f} s")
            else:
                continue
            pause, reported_at = EVERY, now

    def _report(self, text: str) -> None:
        self._last_line = text
        self._write(text)
