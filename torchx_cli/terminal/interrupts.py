"""Ctrl-C handling of attached commands."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

from torchx.lazy import lazy_imports
from torchx.machine import threads
from torchx_cli.terminal.output import shown

with lazy_imports:
    from torchx_cli.terminal import masking

EXIT_INTERRUPTED = 130
"""128 + SIGINT."""

LEFT = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command and leave its application running."""

Handler = Callable[[int], None]
"""Takes the number of a signal."""

_REPLACEABLE: list[Any] = [signal.SIG_DFL]
"""The handlers of :data:`LEFT` that another one may replace."""

CLEAR_LINE = "\r\x1b[2K"
"""The code that clears a line of a terminal, with its ^C."""


def keeps_running(app_id: str, name: str) -> str:
    """Returns the line about an application that this command leaves running."""
    return f"{app_id} keeps running   cancel: torchx cancel {name}   attach: torchx attach {name}"


class Terminated(KeyboardInterrupt):
    """A signal of :data:`LEFT`.

    Attributes:
        exit_code: 128 + its number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


@contextmanager
def taking(handler: Handler, *, replaceable: bool = False) -> Iterator[None]:
    """Handles the first signal of :data:`LEFT` in place of its default action, which the next one has again.

    Args:
        handler: handles it.
        replaceable: another handler may take its place.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in LEFT}
    taken = [number for number in before if before[number] in _REPLACEABLE]

    def on(number: int, frame: FrameType | None) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_DFL)
        handler(number)

    if replaceable:
        _REPLACEABLE.append(on)
    for number in taken:
        signal.signal(number, on)
    try:
        yield
    finally:
        _REPLACEABLE[:] = [each for each in _REPLACEABLE if each is not on]
        for number in taken:
            if signal.getsignal(number) is not signal.SIG_DFL:
                signal.signal(number, before[number])


@contextmanager
def ending_as_data(form_of: Callable[[], str]) -> Iterator[None]:
    """Raises :class:`Terminated` for a signal of :data:`LEFT`, which is then printed as data.

    Args:
        form_of: returns the output format; a command that prints text ends as by default.
    """

    def end(number: int) -> None:
        if form_of() == "text":
            signal.raise_signal(number)
        raise Terminated(number)

    with taking(end, replaceable=True):
        yield


class Terminations:
    """Raises :class:`Terminated` for a signal of :data:`LEFT`, so that JSON can still be printed.

    Before :meth:`arm` it is deferred.

    Args:
        form: the output format; without data to print, the signals keep their default action.
    """

    def __init__(self, form: str) -> None:
        self._armed, self._number = False, 0
        self._taking: AbstractContextManager[None] = nullcontext()
        if form == "json":
            self._taking = taking(self._on)

    def __enter__(self) -> Terminations:
        self._taking.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._taking.__exit__(*exception)

    def arm(self, armed: bool = True) -> None:
        """Sets whether a signal is raised immediately, and raises a deferred one."""
        self._armed = armed
        if armed and self._number:
            raise Terminated(self._number)

    def _on(self, number: int) -> None:
        self._number = number
        if self._armed:
            raise Terminated(number)


class Interrupts:
    """Ctrl-C during a run: the first cancels the application, the second kills it, the third detaches.

    Before :meth:`arm`, the first is deferred and the second detaches.

    Attributes:
        count: number of interrupts received.
        line_drawn: whether a line is drawn on the terminal, which messages replace.
        stopped: whether an interrupt stopped the submission (see :meth:`allow_stop`).
    """

    def __init__(self) -> None:
        self.count = 0
        self.line_drawn = False
        self._stop_allowed = False
        self.stopped = False
        self._steps: list[tuple[str, Callable[[], None]]] = []
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        # shells start background jobs with SIGINT ignored
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if self._before is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, self._on)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def allow_stop(self, allowed: bool) -> None:
        """Sets whether the first interrupt stops the submission; raises immediately if one is deferred."""
        self._stop_allowed = allowed
        if allowed and self.count and not self._steps:
            self.stopped = True
            raise KeyboardInterrupt

    def arm(self, name: str, cancel: Callable[[], None], kill: Callable[[], None]) -> None:
        """Sets the actions of Ctrl-C, and runs the first one immediately if an interrupt is deferred."""
        self._steps = [(f"cancelling {name} (again to kill)", cancel), (f"killing {name}", kill)]
        if self.count:
            self._act(1)

    @contextmanager
    def reporting(self, app_id: str) -> Iterator[None]:
        """Reports the application on stderr if SIGTERM or SIGHUP ends this command, which does not end it."""

        def end(number: int) -> None:
            line = keeps_running(app_id, app_id)
            if self.count:
                line = f"{app_id} is being cancelled"
            self._say(line)
            signal.raise_signal(number)

        with taking(end):
            yield

    def _on(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self._steps and self._stop_allowed:
            self.stopped = True
            raise KeyboardInterrupt
        if not self._steps and self.count == 1:
            self._say("cancelling as soon as it has started (again to leave)")
        elif self.count > max(1, len(self._steps)):
            raise KeyboardInterrupt
        else:
            self._act(self.count)

    def _act(self, step: int) -> None:
        message, action = self._steps[min(step, 2) - 1]
        self._say(message)
        # in a thread: signal handlers must not block log streaming
        if threads.begin(self._call, action) is None:
            self._call(action)

    def _call(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # reported here, as a thread has no caller
            self._say(masking.mask_text(f"error: {error}"))

    def _say(self, text: str) -> None:
        """Writes a line to stderr without Python's buffers, which a signal handler must not use."""
        start = " " if sys.stderr.isatty() else ""  # after the ^C that the terminal shows
        if self.line_drawn:
            start = CLEAR_LINE
        try:
            os.write(sys.stderr.fileno(), f"{start}{shown(text)}\n".encode("utf-8", "backslashreplace"))
        except (OSError, ValueError):
            return
