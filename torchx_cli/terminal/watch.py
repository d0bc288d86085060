"""Watching an application: what changes is told until it has ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from torchx.printable import one_line, printable
from torchx_cli.terminal.output import columns, fit, is_terminal, note, plain, say, shown
from torchx_cli.terminal.times import duration

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.status import AppStatus

LOOK_EVERY = 0.5
"""Seconds between two looks; the end of an application is seen at once where the scheduler wakes us."""

LOOK_ELSEWHERE = 2.0
"""Seconds between two looks at an engine that has to be asked over a network."""


def watch(
    runner: Runner,
    handle: str,
    first: DescribeAppResponse,
    lines_of: Callable[[DescribeAppResponse], list[str]],
    ask: Callable[[], DescribeAppResponse | None],
) -> DescribeAppResponse | None:
    """Shows on stdout how an application fares, until it has ended.

    On a terminal the same lines are kept true; elsewhere each change is a line of its own.

    Args:
        runner: to wait with.
        handle: the application.
        first: how it fares now.
        lines_of: the lines for a terminal.
        ask: how it fares.

    Returns:
        How it ended; None when its scheduler does not know it any more.
    """
    from torchx.runner.status import status_of

    screen = Screen(sys.stdout) if is_terminal(sys.stdout) else None
    told: dict[str, str] = {}
    found: DescribeAppResponse | None = first
    while found is not None:
        status = status_of(found)
        if screen is not None:
            screen.show(lines_of(found), whole=status.is_terminal())
        else:
            _tell_changes(told, changes(found.app_id, status))
        if status.is_terminal():
            return found
        pause = LOOK_EVERY if runner.wakes(handle) else LOOK_ELSEWHERE
        runner.wait(handle, wait_interval=pause, timeout=pause)
        found = ask()
    note(f"{first.app_id} is no longer known to its scheduler")
    return None


def _tell_changes(told: dict[str, str], now: dict[str, str]) -> None:
    for key, text in now.items():
        if told.get(key) != text:
            say(f"{time.strftime('%H:%M:%S')}  {one_line(key)}  {fit(text, None)}", flush=True, hide=True)
    told.clear()
    told.update(now)


def changes(app_id: str, status: AppStatus) -> dict[str, str]:
    """Returns what is told of an application as it changes: what -> how it fares, without what only grows.

    Of a role with many replicas that is how many fare how, and those that failed or were started again.
    """
    from collections import Counter

    from torchx_cli.terminal.status_text import CROWD, how_ended
    from torchx_cli.terminal.times import span

    now: dict[str, str] = {}
    for role in status.roles:
        counts = Counter(replica.state.name for replica in role.replicas)
        crowd = len(role.replicas) > CROWD
        if crowd:
            told = ", ".join(f"{n} {state.lower()}" for state, n in sorted(counts.items()))
            now[role.role] = f"{told} of {len(role.replicas)}"
        for replica in role.replicas:
            ended = how_ended(replica.attempts[-1]) if replica.attempts else ""
            if crowd and not ended and replica.attempt == 1:
                continue
            attempt = f"attempt {replica.attempt} of {max(replica.attempt, replica.max_attempts)}"
            parts = [replica.state.name, ended, attempt if replica.attempt > 1 else ""]
            now[f"{role.role}/{replica.id}"] = "  ".join(part for part in parts if part)
    lasted = span(status.started_at, status.ended_at) if status.ended_at is not None else None
    parts = [status.state.name, "" if lasted is None else f"after {duration(lasted)}"]
    parts += [status.msg] if status.msg and not status.first_failure else []
    now[app_id] = "  ".join(part for part in parts if part)
    return now


class Screen:
    """Some lines of a terminal that are kept true: only those that changed are drawn again.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._window: tuple[int, ...] = ()

    def show(self, lines: Sequence[str], *, whole: bool = False) -> None:
        """Shows these lines in place of those before.

        Args:
            lines: the lines; cut to the window, unless they are the last ones.
            whole: they are the last: show all of them, also what then moves out of the window.
        """
        window = os.get_terminal_size(self._stream.fileno())
        lines = [part for line in lines for part in printable(line).split("\n")]
        if not whole and len(lines) >= window.lines:
            lines = [*lines[: max(1, window.lines - 2)], f"  {len(lines) - window.lines + 2} more lines"]
        if not whole:
            lines = [
                line if columns(plain(line)) <= window.columns else fit(plain(line), window.columns)
                for line in lines
            ]
        out = ""
        if tuple(window) != self._window or whole:
            out += self._up_and_away(window.columns)
            self._lines, self._window = [], tuple(window)
        elif self._lines:
            out += f"\x1b[{len(self._lines)}A\r"
        for at, line in enumerate(lines):
            same = at < len(self._lines) and self._lines[at] == line
            out += "\x1b[B" if same else f"\x1b[2K{shown(line)}\n"
        out += "\x1b[J" if len(lines) < len(self._lines) else ""
        self._lines = list(lines)
        self._stream.write(out)
        self._stream.flush()

    def _up_and_away(self, width: int) -> str:
        """Goes to the first line and clears all: in a window of another width the lines are broken anew."""
        if not self._lines:
            return ""
        rows = sum(max(1, -(-columns(plain(line)) // max(1, width))) for line in self._lines)
        return f"\x1b[{rows}A\r\x1b[J"
