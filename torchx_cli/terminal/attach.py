"""Attached runs: log streaming, Ctrl-C and the result."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import code_of
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED, Interrupts, Terminations
from torchx_cli.terminal.output import (
    discard_output,
    is_terminal,
    note,
    paint,
    print_stderr,
    redirect_to_devnull,
    say,
    wrap,
)

with lazy_imports:
    from torchx.notifications import store
    from torchx.runner import first_failure, notifications
    from torchx.runner.why import explain
    from torchx.scheduling import logs
    from torchx_cli import applications
    from torchx_cli.terminal import ending, masking, measurement_text, notices, status_text, times

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.logs import LogQuery
    from torchx.specs.app import AnyDryRunInfo
    from torchx.specs.status import AppStatus
    from torchx_cli.terminal.streaming import LogPrinter

QUICK = 1.0
"""Seconds; for an application that succeeded within this time, a pipe gets no result."""


FIRST_TRY, PAUSE = 3.0, 0.05
"""Maximum seconds to wait for the first tries to send notifications, and between two queries."""


class Attached:
    """One application from submission to its end; a context manager that handles Ctrl-C.

    Args:
        runner: used to submit and follow the application.
        info: the request.
        stream: whether to show the logs on stderr.
        printer: prints the logs.
        replicas: the replicas whose logs are shown, as in a query.
        form: the output format; with JSON, no lines about events are printed.
        named: an application on the command line of this process, and its name that stays valid.
    """

    def __init__(
        self,
        runner: Runner,
        info: AnyDryRunInfo,
        stream: bool,
        *,
        printer: LogPrinter,
        replicas: Mapping[str, frozenset[int]],
        form: str = "text",
        named: tuple[str, str] = ("", ""),
    ) -> None:
        self._runner, self._info, self._stream = runner, info, stream
        self._query, self._printer = logs.LogQuery(replicas, follow=True), printer
        self._form, self._named = form, named
        self._status: AppStatus | None = None
        self._interrupts, self._terminations = Interrupts(), Terminations(form)
        self.handle = ""

    def __enter__(self) -> Attached:
        self._interrupts.__enter__()
        self._terminations.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._terminations.__exit__(*exception)
        self._interrupts.__exit__(*exception)

    def submit(self) -> str:
        """Submits the application and returns its handle.

        Ctrl-C takes effect after submission, except while an image is pulled, built or pushed: it stops that
        immediately, and nothing is started.
        """
        try:
            self.handle = self._runner.schedule(self._info)
        except KeyboardInterrupt:
            if self._interrupts.stopped:
                note("stopped before anything was started")
            raise
        return self.handle

    def allow_stop(self, allowed: bool) -> None:
        """Sets whether Ctrl-C and SIGTERM may stop the submission immediately."""
        self._terminations.arm(allowed)
        self._interrupts.allow_stop(allowed)

    def leave(self) -> int:
        """Leaves the application running, unless Ctrl-C was pressed during submission."""
        self._terminations.arm()
        if not self._interrupts.count:
            return 0
        self._runner.cancel(self.handle)
        return EXIT_INTERRUPTED

    def to_the_end(self) -> int:
        """Waits until the application has ended, and returns the exit code of the command."""
        self._terminations.arm()
        app_id = app_id_of(self.handle)
        self._interrupts.arm(
            app_id,
            lambda: self._runner.cancel(self.handle),
            lambda: self._runner.kill(self.handle),
        )
        lines = notices.Notices(
            self._runner, self.handle, self._printer.remark, self._info.notes, new=not self._info.existed
        )
        self._printer.before_attempt = lines.catch_up
        leaving = self._interrupts.reporting(app_id)
        with leaving, nullcontext() if self._form == "json" else lines:
            if self._stream:
                show_logs(self._runner, self.handle, self._query, self._printer)
            self._status = self._runner.wait(self.handle)
        if self._status is None:
            note(f"{self.handle} is no longer known to its scheduler")
            return 1
        command, app = command_line(*self._named), self._info.app
        once = app is not None and settings.ONCE in app.metadata  # the same line would submit nothing
        if once or masking.MASK in command or "--stdin" in sys.argv:
            name = applications.short_name(self._runner, self.handle)
            command = explain.rerun_command(name, [] if app is None else app.roles)
        print_result(self._runner, self.handle, self._status, seen=self._stream, command=command)
        if self._interrupts.count:
            return EXIT_INTERRUPTED
        return exit_code(self._status)

    def as_data(self, code: int) -> Object:
        """Returns the result as plain data, for an exit code of the command."""
        return as_data(self._runner, self.handle, self._status or self._runner.status(self.handle), code)


def print_handle(handle: str) -> None:
    """Prints the handle on stdout, or on stderr if stdout is closed."""
    try:
        say(f"{handle}\n", end="", flush=True)  # one write: other threads may print too
    except OSError:
        discard_output()
        note(handle)


def app_id_of(handle: str) -> str:
    """Returns the app id of a handle."""
    return parse_app_handle(handle).app_id


def as_data(runner: Runner, handle: str, status: AppStatus | None, code: int = 0) -> Object:
    """Returns the result of an application as plain data.

    Args:
        runner: used to read the log of the failed replica.
        handle: the application.
        status: its status.
        code: the exit code of the command; that of Ctrl-C replaces the one of the application.
    """
    result = None
    if code == EXIT_INTERRUPTED:
        result = code
    elif status and status.is_terminal():
        result = exit_code(status)
    return {
        **applications.identity(handle),
        "state": status.state.name if status else "UNKNOWN",
        "msg": status.msg if status else "",
        "ui_url": status.ui_url if status else None,
        "exit_code": result,
        "first_failure": first_failure.failure_data(runner, handle, status) if status else None,
    }


def show_logs(runner: Runner, handle: str, query: LogQuery, printer: LogPrinter) -> None:
    """Prints the logs of an application on stderr, until stderr is closed.

    Args:
        runner: used to read the logs.
        handle: the application.
        query: selects the lines.
        printer: prints them.
    """
    try:
        printer.print_log(runner.log_chunks(handle, query))
    except OSError:
        if not printer.failed:
            raise
        redirect_to_devnull(sys.stderr)  # closed, or the disk is full; the result is still needed
    except (TorchxError, NotImplementedError) as error:
        note(f"note: no logs: {error}")


def print_result(runner: Runner, handle: str, status: AppStatus, *, seen: bool, command: str = "") -> None:
    """Prints the result of an application on stderr; if it succeeded quickly, only on a terminal.

    Args:
        runner: used to read the log of the failed replica.
        handle: the application.
        status: the final status.
        seen: whether its logs were shown.
        command: the command that ran it.
    """
    _print_end(runner, handle, status, seen, command)
    for line in _undelivered(runner, handle, status):
        print_stderr(line)


def _print_end(runner: Runner, handle: str, status: AppStatus, seen: bool, command: str) -> None:
    lasted = times.span(status.started_at, status.ended_at, over=True)
    is_quick = lasted is None or lasted < QUICK
    if seen and is_quick and status.state.name == "SUCCEEDED" and not status.msg:
        _print_success(app_id_of(handle), status)
        return
    lines = [ending.last_line(app_id_of(handle), status, sys.stderr)]
    if status.state.name != "FAILED" or status.first_failure is not None:
        lines += [wrap(text, sys.stderr, "  ") for text in [ending.unreported_message(status)] if text]
    alone = sum(len(role.replicas) for role in status.roles) == 1
    excerpt = not (seen and alone)  # otherwise its last lines are right above
    name = applications.short_name(runner, handle)
    lines += ending.failure_lines(runner, handle, status, sys.stderr, name, command, excerpt)
    if lasted is not None and lasted >= measurement_text.LONG_ENOUGH:
        remark = measurement_text.request_note(measurement_text.usage_of(runner, handle))
        if remark:
            lines += [wrap(paint(f"note: {remark}", "dim", sys.stderr), sys.stderr, "  ")]
    print_stderr("\n".join(lines))


def _undelivered(runner: Runner, handle: str, status: AppStatus) -> list[str]:
    """Returns a line about each notification that could not be delivered, after the first try of each."""
    if not runner.notifications(handle):
        return []
    end = time.monotonic() + FIRST_TRY
    while True:
        sent = notifications.left(runner, handle, status.state)
        tried = all(each.is_final or each.state == store.RETRY for each in sent)
        if tried or time.monotonic() > end:
            break
        time.sleep(PAUSE)
    failed = [each for each in sent if each.state not in (store.DELIVERED, store.PLANNED)]
    return [wrap(masking.mask_text(status_text.notification_line(each)), sys.stderr, "  ") for each in failed]


def _print_success(app_id: str, status: AppStatus) -> None:
    if is_terminal(sys.stderr):
        print_stderr(ending.last_line(app_id, status, sys.stderr))


def exit_code(status: AppStatus) -> int:
    """Returns the exit code for an application.

    0 if it succeeded, 124 if it reached its time limit, else that of the replica that failed first (128 + N
    for signal N), or 1.
    """
    if status.state.name == "SUCCEEDED":
        return 0
    return (code_of(status.state, status.cause, status.first_failure) or 1) & 0xFF or 1


def command_line(application: str = "", name: str = "") -> str:
    """Returns the current command line, quoted for a shell, with secrets masked.

    Args:
        application: the application that it names, which may be `@last`.
        name: the name of that application that stays valid.
    """
    args = [os.path.basename(sys.argv[0]), *sys.argv[1:]]  # noqa: PTH119  # a string, not a path
    if args[0] in ("__main__.py", "-c", "-m"):
        args[:1] = ["torchx"]
    if application in args[2:]:
        args[args.index(application, 2)] = name
    return masking.command_line(args)
