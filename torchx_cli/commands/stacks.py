"""`torchx stacks`: show the stacks of the processes of an application."""

from __future__ import annotations

import sys
import time
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.scheduling import checks, stalls
from torchx.scheduling.stacks_text import as_text
from torchx.specs.handles import parse_numbers
from torchx.specs.status import is_terminal
from torchx_cli.applications import ACTIVE, find, target_of, with_role
from torchx_cli.flags import Json, LogTarget, Output, option
from torchx_cli.session import session_of
from torchx_cli.terminal.masking import mask
from torchx_cli.terminal.output import emit, note, output_format, say, say_json, width_of

if TYPE_CHECKING:
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.handles import LogTarget as Target

SHORTEST_INTERVAL = 0.5
"""Minimum seconds between two rounds of --watch."""


def stacks_(
    ctx: typer.Context,
    target: LogTarget,
    rank: Annotated[
        str,
        option(
            "--rank", metavar="N,...", help="Only processes whose variable RANK is one of these: 3 or 0,4-7."
        ),
    ] = "",
    native: Annotated[
        bool,
        typer.Option(
            "--native", help="Also show frames of compiled code; this pauses each process for a moment."
        ),
    ] = False,
    watch: Annotated[
        str, option("--watch", metavar="S", help="Repeat every S seconds until the application ends.")
    ] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Show the Python stacks of all processes: identical stacks are grouped, rarest first.

    A process without Python, or one that cannot be read, is shown with the system call in which it
    waits. The exit code is 1 if no process is shown. Python stacks need py-spy: pip install py-spy
    """
    form = output_format(output, json)
    ranks = None
    if rank:
        ranks = parse_numbers(rank, "--rank")
    interval = None
    if watch:
        interval = max(stalls.seconds("--watch", watch), SHORTEST_INTERVAL)
    with session_of(ctx).runner() as runner:
        parsed = target_of(runner, target)
        handle, described = find(runner, parsed.handle, prefer=ACTIVE)
        replicas = _replicas(parsed, described)
        while True:
            taken = runner.stacks(handle, replicas, ranks, native)
            if form != "text":
                data = {"handle": handle, **taken.to_json()}
                if interval is not None and form == "json":  # a stream has one object per line
                    say_json(dumps(mask(data)))
                else:
                    emit(data, form, hide=True)
            else:
                if interval is not None:
                    say(f"--- {time.strftime('%H:%M:%S')}")
                for line in as_text(taken, width_of(sys.stdout)):
                    say(line, hide=True, flush=True)
                if not taken.processes:
                    note("no matching processes")
            if interval is None:
                return int(not taken.processes)
            runner.pause(handle, interval)
            current = runner.poll(handle)
            if current is None or is_terminal(current.state):
                return 0


def _replicas(target: Target, described: DescribeAppResponse) -> list[str] | None:
    """Returns the requested role or replicas; None for all.

    Raises:
        StateError: the role or replica does not exist.
    """
    target = with_role(target, described)
    if target.role is None:
        return None
    known = checks.replicas_in(described.roles_statuses)
    checks.require_replicas(described.app_id, known, target.role, target.replicas)
    return [f"{target.role}/{replica}" for replica in target.replicas] or [target.role]
