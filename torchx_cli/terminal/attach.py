"""A run that stays with its application: logs as they come, Ctrl-C, and the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from torchx.errors import TorchxError
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED, Interrupts
from torchx_cli.terminal.output import note, send_nowhere, tell

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.logs import LogQuery
    from torchx.specs.dryrun import AppDryRunInfo
    from torchx.specs.status import AppStatus

QUICK = 1.0
"""Seconds: of an application that succeeded within this, nothing is told but what it printed."""


class Attached:
    """One application from its submission to its end; a context manager that takes over Ctrl-C.

    Args:
        runner: submits it and looks after it.
        info: what is submitted.
        stream: whether its logs are shown on stderr.
    """

    def __init__(self, runner: Runner, info: AppDryRunInfo[Any], stream: bool) -> None:
        self._runner, self._info, self._stream = runner, info, stream
        self._status: AppStatus | None = None
        self._interrupts = Interrupts()
        self.handle = ""

    def __enter__(self) -> Attached:
        self._interrupts.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts.__exit__(kind, error, trace)

    def submit(self) -> str:
        """Submits the application and returns its handle.

        Ctrl-C meanwhile counts when it has started, but while an image is pulled, built or pushed: that stops
        at once, and nothing is started.
        """
        try:
            self.handle = self._runner.schedule(self._info)
        except KeyboardInterrupt:
            if self._interrupts.stopped:
                note("stopped before anything was started")
            raise
        return self.handle

    def stoppable(self, now: bool) -> None:
        """Tells whether Ctrl-C may stop the submission where it is now."""
        self._interrupts.may_stop(now)

    def leave(self) -> int:
        """Leaves the application running, unless Ctrl-C came during the submission."""
        if not self._interrupts.count:
            return 0
        self._runner.cancel(self.handle)
        return EXIT_INTERRUPTED

    def to_the_end(self) -> int:
        """Stays until the application has ended, and returns the exit code of the command."""
        self._interrupts.arm(
            app_id_of(self.handle),
            lambda: self._runner.cancel(self.handle),
            lambda: self._runner.kill(self.handle),
        )
        if self._stream:
            from torchx.scheduling.logs import LogQuery

            roles = self._info.app.roles if self._info.app is not None else []
            with telling_why_it_waits(self._runner, self.handle):
                show_logs(
                    self._runner,
                    self.handle,
                    LogQuery(follow=True),
                    ((role.name, role.num_replicas) for role in roles),
                )
        with telling_why_it_waits(self._runner, self.handle):
            self._status = self._runner.wait(self.handle)
        if self._status is None:
            note(f"{self.handle} is no longer known to its scheduler")
            return 1
        tell_end(self._runner, self.handle, self._status, seen=self._stream, again=command_line())
        return EXIT_INTERRUPTED if self._interrupts.count else exit_code(self._status)

    def as_data(self) -> dict[str, Any]:
        """Returns how it went as plain data: handle, app_id, scheduler, state, ui_url and more."""
        return as_data(self.handle, self._status or self._runner.status(self.handle))


def app_id_of(handle: str) -> str:
    """Returns the id within a handle."""
    from torchx.specs.handles import parse_app_handle

    return parse_app_handle(handle).app_id


def telling_why_it_waits(runner: Runner, handle: str) -> AbstractContextManager[object]:
    """Returns what tells, meanwhile, why an application waits; on this machine none waits for long."""
    if handle.startswith("local"):
        return nullcontext()
    from torchx_cli.terminal.waiting import Waiting

    return Waiting(runner, handle)


def as_data(handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Returns how an application went as plain data."""
    from torchx.specs.handles import parse_app_handle

    scheduler, _, app_id = parse_app_handle(handle)
    data = {
        "handle": handle,
        "app_id": app_id,
        "scheduler": scheduler,
        "state": status.state.name if status else "UNKNOWN",
        "ui_url": status.ui_url if status else None,
        "exit_code": exit_code(status) if status and status.is_terminal() else None,
        "first_failure": None,
    }
    if status is not None and status.first_failure is not None:
        data["first_failure"] = status.to_json()["first_failure"]
    return data


def show_logs(runner: Runner, handle: str, query: LogQuery, roles: Iterable[tuple[str, int]]) -> None:
    """Shows the logs of an application on stderr, as far as that takes them.

    Args:
        runner: reads the logs.
        handle: the application.
        query: which lines.
        roles: name and number of replicas of each role that may come.
    """
    from torchx_cli.terminal.streaming import labels_of, print_chunks, stderr_printer

    printer = stderr_printer(labels_of(roles))
    try:
        print_chunks(runner.log_chunks(handle, query), printer)
    except OSError:
        if not printer.failed:
            raise
        send_nowhere(sys.stderr)  # nobody reads any more, or the disk is full; the result still counts
    except (TorchxError, NotImplementedError) as error:
        note(f"note: no logs: {error}")


def tell_end(runner: Runner, handle: str, status: AppStatus, *, seen: bool, again: str = "") -> None:
    """Tells on stderr how an application ended; nothing of one that succeeded at once.

    Args:
        runner: reads the log of what failed.
        handle: the application.
        status: how it ended.
        seen: its logs were shown.
        again: the command that ran it.
    """
    from torchx_cli.applications import short
    from torchx_cli.terminal.ending import failure_lines, last_line, unsaid
    from torchx_cli.terminal.output import wrap
    from torchx_cli.terminal.times import span

    lasted = span(status.started_at, status.ended_at)
    if seen and status.state.name == "SUCCEEDED" and not status.msg and (lasted is None or lasted < QUICK):
        return
    lines = [last_line(app_id_of(handle), status, sys.stderr)]
    if status.state.name == "SUCCEEDED" or status.first_failure is not None:
        lines += [wrap(said, sys.stderr, "  ") for said in [unsaid(status)] if said]
    alone = sum(len(role.replicas) for role in status.roles) == 1
    lines += failure_lines(
        runner, handle, status, sys.stderr,
        called=short(runner, handle), again=again,
        excerpt=not (seen and alone),  # else its last lines stand right above
    )  # fmt: skip
    tell("\n".join(lines))


def exit_code(status: AppStatus) -> int:
    """Returns the exit code that tells how an application ended.

    0 when it succeeded; that of the replica that failed first, 128 + N when signal N ended that; else 1.
    """
    if status.state.name == "SUCCEEDED":
        return 0
    result = status.first_failure.result if status.first_failure is not None else None
    return (result & 0xFF or 1) if result else 1


def command_line() -> str:
    """Returns this command as it can be typed again, secrets masked."""
    from torchx_cli.terminal.masking import command_line as masked_command_line

    words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119  # a text, and no path to open
    if words[0] in ("__main__.py", "-c", "-m"):
        words[:1] = ["torchx"]
    return masked_command_line(words)
