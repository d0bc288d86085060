"""Reading of log files that another process writes, as schedulers of other packages do it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from torchx.scheduling.base import split_lines
from torchx.specs.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx.scheduling.base import Scheduler

_PAUSE = 0.05
"""Seconds between two reads of the file."""
_LONGEST = 1.0
"""Maximum seconds between two queries of the state, while nothing is written."""


def split_lines_iterator(chunks: Iterable[str]) -> Iterator[str]:
    r"""Yields the lines of several texts, each with its line end.

    >>> list(split_lines_iterator(["a\nb\n", "c"]))
    ['a\n', 'b\n', 'c']
    """
    for chunk in chunks:
        yield from split_lines(chunk)


class LogIterator:
    """Yields the text of a log file while it grows, until the application has ended.

    Args:
        app_id: the application.
        log_file: the file, which need not exist yet.
        scheduler: reports the state of the application.
        should_tail: follow the file; otherwise only the present content.
    """

    def __init__(
        self, app_id: str, log_file: str, scheduler: Scheduler[Any], should_tail: bool = True
    ) -> None:
        self._app_id = app_id
        self._log_file = log_file
        self._scheduler = scheduler
        self._log_fp: TextIO | None = None
        self._app_finished = not should_tail

    def _check_finished(self) -> None:
        """Sets `_app_finished`; subclasses may also fetch the file."""
        described = self._scheduler.describe(self._app_id)
        self._app_finished = (
            described is None or is_terminal(described.state) or described.state is AppState.UNKNOWN
        )

    def __iter__(self) -> Iterator[str]:
        tail = not self._app_finished
        self._check_finished()
        self._app_finished = self._app_finished or not tail
        return self

    def __next__(self) -> str:
        interval, due = _PAUSE, 0.0
        while not (text := self._read()):
            if self._app_finished:
                self._close()
                raise StopIteration
            time.sleep(_PAUSE)
            if time.monotonic() >= due:  # then one more read: text written until the end is not lost
                self._check_finished()
                interval = min(2 * interval, _LONGEST)
                due = time.monotonic() + interval
        return text

    def _read(self) -> str:
        if self._log_fp is None:
            try:
                self._log_fp = Path(self._log_file).open(encoding="utf-8", errors="replace", newline="\n")  # noqa: SIM115
            except FileNotFoundError:
                return ""
        return self._log_fp.readline()

    def _close(self) -> None:
        if self._log_fp is not None:
            self._log_fp.close()
            self._log_fp = None
