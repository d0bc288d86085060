"""`torchx exec`: run a program in a running replica."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.streams import Streams
from torchx_cli.applications import ACTIVE, find, target_of, with_role
from torchx_cli.commands.log import of_target
from torchx_cli.flags import Replica, argument
from torchx_cli.session import session_of
from torchx_cli.terminal.raw import terminal_size, with_raw_terminal

with lazy_imports:
    from torchx.scheduling import checks

if TYPE_CHECKING:
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.handles import LogTarget

SETTINGS = {"allow_interspersed_args": False}  # arguments after the replica belong to the program


EXAMPLES = """\b
Examples:
  torchx exec @last nvidia-smi
  torchx exec @last/trainer/3 bash
"""


def exec_(
    ctx: typer.Context,
    target: Replica,
    command: Annotated[
        list[str],
        argument(metavar="COMMAND [ARGS]...", help="The program and its arguments, run without a shell."),
    ],
    stdin: Annotated[
        bool, typer.Option("-i", "--stdin", help="Forward stdin (always on a terminal).")
    ] = False,
) -> int:
    """Run a program in a running replica and return its exit code.

    Without a role and a replica, the first ones are used. On a terminal the program gets a terminal
    too, unless the command runs in the background of a shell.
    """
    if command[0] == "--":
        command = command[1:]
    if not command:
        raise UsageError("no program given, e.g. torchx exec @last nvidia-smi", code="missing_argument")
    may_read = not sys.stdin.isatty() or _in_foreground()
    terminal = sys.stdin.isatty() and sys.stdout.isatty() and may_read
    with session_of(ctx).runner() as runner:
        parsed = target_of(runner, target, acts=True)
        handle, described = find(runner, parsed.handle, outline=True, prefer=ACTIVE, acts=True)
        role, replica = requested_replica(parsed, described)
        source = None
        if terminal or (stdin and may_read):
            source = sys.stdin.fileno()
        streams = Streams(sys.stdout.buffer, sys.stderr.buffer, source, terminal, terminal_size)
        with with_raw_terminal(terminal):
            return runner.execute(handle, role, replica, command, streams)


def requested_replica(parsed: LogTarget, described: DescribeAppResponse) -> tuple[str, int]:
    """Returns the requested replica (default: the first one).

    Raises:
        UsageError: several replicas are given.
        StateError: the replica does not exist.
    """
    if len(parsed.replicas) > 1:
        raise UsageError("expected a single replica, e.g. @last/trainer/0")
    of_target(LogQuery(), parsed, described)
    checks.require_readable(described.app_id, described.owner)
    if not described.roles_statuses:
        raise StateError(f"{described.app_id} has no replicas")
    parsed = with_role(parsed, described)
    return parsed.role or described.roles_statuses[0].role, parsed.replicas[0] if parsed.replicas else 0


def _in_foreground() -> bool:
    """Returns False in the background of a shell, which stops a process that uses the terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal that is not that of this session: it stops no process
        return True
