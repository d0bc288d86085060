"""`torchx attach`: back to an application that runs: its logs as they come, and its result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx_cli.flags import LogTarget, count
from torchx_cli.session import session_of
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED
from torchx_cli.terminal.output import is_terminal, note, tell

if TYPE_CHECKING:
    from torchx.runner.api import Runner

RECENT = 20
"""How many of the lines that are there already are shown first."""


def attach_(
    ctx: typer.Context,
    target: LogTarget,
    lines: Annotated[
        str,
        typer.Option(
            "-n",
            "--lines",
            metavar="N",
            show_default=False,
            help=f"Begin with the last N lines of what is there; {RECENT} unless told.",
        ),
    ] = "",
) -> int:
    """Stay with an application that was left running: stream its logs, and return its result.

    As with an attached run, the logs go to stderr, and the exit code is that of the replica that
    failed first. Other than there, Ctrl-C only leaves: the application goes on.
    """
    from torchx.scheduling.logs import LogQuery
    from torchx.specs.handles import parse_log_target
    from torchx_cli.applications import find
    from torchx_cli.commands.log import of_target
    from torchx_cli.terminal.attach import app_id_of, exit_code, show_logs, tell_end, telling_why_it_waits

    told = count("-n", lines)
    wanted = parse_log_target(target)
    with session_of(ctx).runner() as runner:
        handle, described = find(runner, wanted.handle)
        query = LogQuery(tail=RECENT if told is None else told, follow=True)
        query = of_target(query, wanted, described)
        roles = [(role.role, len(role.replicas)) for role in described.roles_statuses]
        try:
            with telling_why_it_waits(runner, handle):
                show_logs(
                    runner, handle, query, (r for r in roles if not query.replicas or r[0] in query.replicas)
                )
                status = runner.wait(handle)
        except KeyboardInterrupt:
            _tell_left(runner, handle)
            return EXIT_INTERRUPTED
        if status is None:
            note(f"{app_id_of(handle)} is no longer known to its scheduler")
            return 1
        tell_end(runner, handle, status, seen=not query.replicas)
        return exit_code(status)


def _tell_left(runner: Runner, handle: str) -> None:
    from torchx_cli.applications import short
    from torchx_cli.terminal.attach import app_id_of

    called = short(runner, handle)
    if is_terminal(sys.stderr):
        tell("")  # the ^C stands on this line
    note(f"{app_id_of(handle)} goes on   to end it: torchx cancel {called}   back: torchx attach {called}")
