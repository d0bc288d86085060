"""The live view on a terminal: draws the visible rows, and acts on keys."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torchx import excerpts
from torchx.errors import TorchxError
from torchx.printable import first_line, one_line
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.responses import status_of
from torchx_cli.terminal.drawing import FullScreen
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import bar_of, colour, columns, counted, fit, note, paint, plain
from torchx_cli.terminal.status_text import status_lines
from torchx_cli.terminal.streaming import printer_of
from torchx_cli.top.keys import Keyboard
from torchx_cli.top.view import HEADS, Line, draw, lines_of, name_width, row_text, shown_columns, size_text

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx_cli.top.snapshot import AppRows, Collector

PAUSE = 0.5
"""Minimum seconds between two drawings, unless a key is pressed."""

_LOG_LINES = 100
_DETAIL_LINES = 12
_KEYS = "j/k select  enter details  l log  c cancel  q quit"
_REVERSE = "7"


class Top:
    """The live view.

    Args:
        runner: used to read logs and to cancel.
        collector: reads the applications.
    """

    def __init__(self, runner: Runner, collector: Collector) -> None:
        self._runner, self._collector = runner, collector
        self._out = sys.stdout
        self._selected: tuple[str, str, int] | None = None
        self._first = 0  # the first visible row
        self._details: list[str] | None = None
        self._confirm: AppRows | None = None
        self._message = ""
        self._lines: list[Line] = []

    def run(self) -> None:
        """Shows the applications until the user quits.

        Raises:
            Exception: an unexpected error of the collector.
        """
        key = ""
        while key != "q":
            with ExitStack() as stack:
                keyboard = stack.enter_context(Keyboard())
                screen = stack.enter_context(FullScreen(self._out))
                self._collector.changed = keyboard.wake
                try:
                    key = self._show(keyboard, screen)
                finally:
                    self._collector.changed = lambda: None
            if key == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif key == "log":
                self._log()

    def _show(self, keyboard: Keyboard, screen: FullScreen) -> str:
        """Draws until the screen has to be left; returns the reason: q, log or stop."""
        drawn, pressed = 0.0, True
        shown: object = None
        while True:
            if self._collector.error is not None:
                raise self._collector.error
            now = time.monotonic()
            state = (self._collector.rounds, screen.size, self._message, self._details)
            stale = state != shown
            if pressed or (stale and now - drawn >= PAUSE):
                self._draw(screen)
                drawn, shown = now, state
                stale = False
            key = keyboard.read(max(0.0, drawn + PAUSE - time.monotonic()) if stale else 3600.0)
            if keyboard.suspended:
                keyboard.suspended = False
                return "stop"
            pressed = bool(key)
            reason = ""
            if key:
                reason = self._press(key, screen.size[1])
            if reason:
                return reason

    # --- keys ------------------------------------------------------------------------------------

    def _press(self, key: str, height: int) -> str:
        """Acts on a key; returns the reason to leave the screen, if any."""
        if self._confirm is not None:
            if key == "y":
                self._cancel(self._confirm)
            self._confirm = None
            return ""
        if self._details is not None:
            self._details = None
            if key == "q":
                return "q"
            return ""
        self._message = ""
        line = self._line()
        if key == "q":
            return "q"
        if line is None:
            return ""
        if key == "l":
            return "log"
        if key == "c":
            if line.app.has_ended:
                self._message = f"{line.app.app_id} has ended"
            else:
                self._confirm = line.app
        elif key == "enter":
            self._show_details(line)
        else:
            self._move(key, max(1, height - 4))
        return ""

    def _move(self, key: str, page: int) -> None:
        steps = {
            "up": -1, "down": 1, "page up": -page, "page down": page,
            "home": -len(self._lines), "end": len(self._lines),
        }  # fmt: skip
        at = self._position() + steps.get(key, 0)
        self._selected = self._lines[max(0, min(len(self._lines) - 1, at))].key

    def _position(self) -> int:
        """Returns the selected row; the first one if it is not there any more."""
        return next((at for at, line in enumerate(self._lines) if line.key == self._selected), 0)

    def _line(self) -> Line | None:
        if self._lines:
            return self._lines[self._position()]
        return None

    def _cancel(self, app: AppRows) -> None:
        self._message = f"cancelling {app.app_id}"

        def cancel() -> None:
            try:
                self._runner.cancel(app.handle)
            except Exception as error:  # shown, as a thread has no caller
                self._message = mask_text(f"error: {first_line(error)}")
            self._collector.refresh()

        threading.Thread(target=cancel, name="cancel", daemon=True).start()

    def _log(self) -> None:
        """Prints the log of the selected replica or application until Ctrl-C or its end."""
        line = self._line()
        if line is None:
            return
        if line.replica is None:
            selected = {}
        else:
            selected = {line.replica.role: frozenset({line.replica.replica})}
        roles = []
        if line.app.description:
            roles = line.app.description.roles_statuses
        query = LogQuery(selected, tail=_LOG_LINES, follow=not line.app.has_ended)
        printer = printer_of(self._out, [(role.role, len(role.replicas)) for role in roles])
        try:
            printer.print_log(self._runner.log_chunks(line.app.handle, query))
            note("the end of the log; enter to return")
            sys.stdin.readline()
        except KeyboardInterrupt:
            return
        except (TorchxError, NotImplementedError) as error:
            self._message = mask_text(f"error: {first_line(error)}")

    def _show_details(self, line: Line) -> None:
        """Shows details of the selected application, and the last lines of the selected replica."""
        app, replica = line.app, line.replica
        if app.description is None:
            self._details = [app.error or "not known yet"]
            return
        nodes = not self._runner.scheduler_of(app.handle).on_this_machine
        lines = status_lines(app.handle, status_of(app.description), [], self._out, nodes=nodes)
        self._details = shown = [mask_text(text) for text in lines]
        if replica is None:
            return
        query = LogQuery({replica.role: frozenset({replica.replica})}, tail=_DETAIL_LINES)
        name = one_line(replica.name)

        def read() -> None:
            try:
                last = excerpts.last_lines(self._runner.log_chunks(app.handle, query), _DETAIL_LINES)
            except Exception as error:  # shown, as a thread has no caller
                last = [f"error: {first_line(error)}"]
            if self._details is shown:
                self._details = [
                    *shown,
                    "",
                    paint(name, "bold", self._out),
                    *(f"{bar_of(self._out)} {mask_text(text)}" for text in last),
                ]
                self._collector.changed()

        threading.Thread(target=read, name="details", daemon=True).start()

    # --- drawing ---------------------------------------------------------------------------------

    def _draw(self, screen: FullScreen) -> None:
        window, height = screen.size
        self._lines = lines_of(self._collector.apps)
        if self._details is not None:
            body = [fit_painted(line, window) for line in self._details[: height - 2]]
            footer = "any key to return"
        else:
            body = self._table(window, height)
            footer = self._message or _KEYS
            if self._confirm is not None:
                footer = f"cancel {one_line(self._confirm.app_id)}? y to confirm, any other key to return"
        body += [""] * (height - 1 - len(body))
        screen.show([*body[: height - 1], paint(fit(footer, window), "dim", self._out)])

    def _table(self, window: int, height: int) -> list[str]:
        """Returns the title, the heads and the visible rows."""
        apps = self._collector.apps
        rows_of_all = [replica for app in apps for replica in app.replicas]
        title = f"{counted(len(apps), 'application')}, {size_text(rows_of_all)}"
        if not apps:
            return [f"torchx top  {title}", "", "no running applications"]
        room, position = max(1, height - 3), self._position()
        title = f"torchx top  {position + 1} of {len(self._lines)}  {title}"
        self._first = max(0, min(self._first, position, len(self._lines) - room), position - room + 1)
        visible = self._lines[self._first : self._first + room]
        width, shown = name_width(visible), shown_columns(apps, window)
        rows = [paint(fit(title, window), "bold", self._out), row_text(HEADS, width, shown, window)]
        for line in visible:
            text = draw(line, width, shown, window, self._out)
            if line.key == self._lines[position].key:
                text = plain(text)
                text = colour(text + " " * (window - columns(text)), _REVERSE)
            rows.append(text)
        return rows


def fit_painted(text: str, width: int) -> str:
    """Returns a line that fits a window; a longer one loses its colours."""
    if columns(plain(text)) <= width:
        return text
    return fit(plain(text), width)
