"""`torchx exec`: a program in a replica, beside what runs there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import StateError, UsageError
from torchx_cli.flags import Replica
from torchx_cli.session import session_of

if TYPE_CHECKING:
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.handles import LogTarget

SETTINGS = {"allow_interspersed_args": False}  # all that follows the replica is for the program


def exec_(
    ctx: typer.Context,
    target: Replica,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND [ARGS]...", show_default=False, help="The program and its arguments; no shell."
        ),
    ],
    stdin: Annotated[
        bool, typer.Option("-i", "--stdin", help="Hand on what is typed; always so on a terminal.")
    ] = False,
) -> int:
    """Run a program in a replica that runs, beside what runs there, and return its result.

    Without a role or a replica it is the first one. On a terminal the program gets one too.
    """
    from torchx.scheduling.streams import Streams
    from torchx.specs.handles import parse_log_target
    from torchx_cli.applications import find

    wanted = parse_log_target(target)
    command = command[1:] if command[0] == "--" else command
    if not command:
        raise UsageError("what is to be run? e.g. torchx exec @last nvidia-smi")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with session_of(ctx).runner() as runner:
        handle, described = find(runner, wanted.handle)
        role, replica = chosen(wanted, described)
        source = sys.stdin.fileno() if stdin or terminal else None
        streams = Streams(sys.stdout.buffer, sys.stderr.buffer, source, terminal, _size)
        with _raw(terminal):
            return runner.execute(handle, role, replica, command, streams)


def chosen(wanted: LogTarget, described: DescribeAppResponse) -> tuple[str, int]:
    """Returns the replica that is meant: the first one unless told.

    Raises:
        UsageError: several are.
        StateError: the application has no such replica, or has none at all.
    """
    from torchx.scheduling.logs import LogQuery
    from torchx_cli.commands.log import of_target

    if len(wanted.replicas) > 1:
        raise UsageError("a program is run in one replica, e.g. @last/trainer/0")
    of_target(LogQuery(), wanted, described)
    if not described.roles_statuses:
        raise StateError(f"{described.app_id} has no replicas")
    return wanted.role or described.roles_statuses[0].role, wanted.replicas[0] if wanted.replicas else 0


def _size() -> tuple[int, int]:
    window = os.get_terminal_size(sys.stdout.fileno())
    return window.lines, window.columns


@contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    """Hands every key on as it is, Ctrl-C too, while a program has the terminal."""
    if not terminal:
        yield
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
