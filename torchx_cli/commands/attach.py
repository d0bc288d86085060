"""`torchx attach`: follow the logs of a running application and return its result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.lazy import lazy_imports
from torchx_cli.flags import Fold, LogTarget, Show, count, lines_option
from torchx_cli.session import session_of
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED, Interrupts, keeps_running
from torchx_cli.terminal.output import is_terminal, note, print_stderr

with lazy_imports:
    from torchx.scheduling import logs
    from torchx_cli import applications
    from torchx_cli.commands import log
    from torchx_cli.sweep import attach as sweep_attach
    from torchx_cli.terminal import attach, notices, streaming

if TYPE_CHECKING:
    from torchx.runner.api import Runner

RECENT = 20
"""Default number of existing log lines to show."""


def attach_(
    ctx: typer.Context,
    target: LogTarget,
    lines: Annotated[
        str,
        lines_option(f"Print the last N existing lines first (default: {RECENT})."),
    ] = "",
    show: Show = "",
    fold: Fold = False,
) -> int:
    """Attach to a running application: stream its logs and return its result.

    As in an attached run, logs go to stderr, and the replica that failed first sets the exit code. But
    Ctrl-C only detaches: the application keeps running.
    """
    tail = count("-n", lines)
    with session_of(ctx).runner() as runner:
        parsed = applications.target_of(runner, target, acts=True)
        handle, described = applications.find(runner, parsed.handle, prefer=applications.ACTIVE, acts=True)
        query = logs.LogQuery(tail=RECENT if tail is None else tail, follow=True)
        query = log.of_target(query, parsed, described, show)
        printer = streaming.printer_of(sys.stderr, log.counts_of(described), query.replicas, fold=fold)
        try:
            leaving = Interrupts().reporting(attach.app_id_of(handle))
            follower = notices.Notices(runner, handle, printer.remark, new=False)
            printer.before_attempt = follower.catch_up
            with leaving, follower:
                attach.show_logs(runner, handle, query, printer)
                status = runner.wait(handle)
        except KeyboardInterrupt:
            _print_detached(runner, handle)
            return EXIT_INTERRUPTED
        if status is None:
            note(f"{attach.app_id_of(handle)} is no longer known to its scheduler")
            return 1
        sweep_attach.print_any_result(runner, handle, status, seen=not query.replicas)
        return attach.exit_code(status)


def _print_detached(runner: Runner, handle: str) -> None:
    name = applications.short_name(runner, handle)
    if is_terminal(sys.stderr):
        print_stderr("")  # end the line with the ^C
    note(keeps_running(attach.app_id_of(handle), name))
