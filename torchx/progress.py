"""How far something is that takes long: told by who does it, in lines, or drawn by who can draw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, runtime_checkable

PATIENCE = 0.4
"""Seconds for which nothing is said: what is done by then needs no word."""

EVERY = 2.0
"""Seconds between two lines about the same thing."""

STILL = 10.0
"""Seconds after which it is said that something goes on in which nothing has changed."""

MB = 1_000_000


@dataclass(frozen=True)
class Part:
    """A part of what is done, such as a layer of an image.

    Attributes:
        name: what it is called.
        status: what happens to it.
        done, total: bytes; 0 where they are not known.
    """

    name: str
    status: str = ""
    done: int = 0
    total: int = 0

    @property
    def bytes(self) -> str:
        """The bytes as people say them; empty where they are not known.

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
    """How far something is.

    Attributes:
        what: what is done, such as ``pulling python:3.12``.
        detail: where it stands, such as ``step 2 of 3``.
        parts: its parts, in their order.
        last: the last lines that it has printed.
    """

    what: str
    detail: str = ""
    parts: tuple[Part, ...] = ()
    last: tuple[str, ...] = ()

    @property
    def bytes(self) -> str:
        """The bytes of all parts, as people say them."""
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
    """Who takes lines, and wants to know besides what goes on."""

    def began(self, ongoing: Ongoing) -> bool:
        """Takes note that something has begun; returns whether it is drawn, so that no lines are needed."""
        ...

    def ended(self, ongoing: Ongoing) -> None:
        """Takes note that it has ended, well or not."""
        ...


class Ongoing:
    """Something that takes long, told for as long as it goes on; a context manager.

    What is quick is not told. Of what is not, a line comes before half a second has passed, then one every
    few seconds, and one when it is done. Who draws looks at :attr:`now` whenever it likes.

    Args:
        tell: called with each line, from a thread of its own; may be one that :class:`Follows`.
        what: what is done, such as ``pulling python:3.12``.
        at_once: say so now: it is known that it will take long.

    Attributes:
        now: how far it is.
        at_once: it is known that it will take long.
        began_at: when it began, by :func:`time.monotonic`.
    """

    def __init__(self, tell: Callable[[str], None], what: str, *, at_once: bool = False) -> None:
        self.now = Progress(what)
        self.began_at = time.monotonic()
        self._tell, self.at_once = tell, at_once
        follower: object = tell
        self._follower = follower if isinstance(follower, Follows) else None
        self._drawn = False
        self._said = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._say_lines, name="progress", daemon=True)

    @property
    def seconds(self) -> float:
        """For how long it goes on already."""
        return time.monotonic() - self.began_at

    def update(self, detail: str = "", parts: tuple[Part, ...] = (), last: tuple[str, ...] = ()) -> None:
        """Takes how far it is now."""
        self.now = Progress(self.now.what, detail, parts, last)

    def done(self, line: str) -> None:
        """Sums it up in a line, which is told unless all of it was quick."""
        self._finish()
        if self._said or self.seconds > PATIENCE:
            self._tell(line)

    def __enter__(self) -> Ongoing:
        self._drawn = self._follower.began(self) if self._follower is not None else False
        if not self._drawn:
            if self.at_once:
                self._say(self.now.text)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._end.is_set():
            return
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._follower is not None:
            self._follower.ended(self)

    def _say_lines(self) -> None:
        pause, told_at = (EVERY if self._said else PATIENCE), time.monotonic()
        while not self._end.wait(pause):
            text, now = self.now.text, time.monotonic()
            if text != self._said:
                self._say(text)
            elif now - told_at >= STILL:
                self._tell(f"{text}, since {self.seconds:.0f} s")
            else:
                continue
            pause, told_at = EVERY, now

    def _say(self, text: str) -> None:
        self._said = text
        self._tell(text)
