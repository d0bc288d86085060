"""The applications that `cancel`, `delete` and `wait` affect: the given ones, or all that match flags."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from torchx.errors import UsageError
from torchx.scheduling.query import AppQuery
from torchx.specs.handles import parse_app_handle
from torchx_cli.commands.list import gather, newest
from torchx_cli.flags import states_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import is_terminal, note, print_stderr

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse
    from torchx_cli.session import Session

Handles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[HANDLE]...",
        show_default=False,
        help="Applications: handles, app ids or prefixes of them, names, or @last.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="All applications of yours to which the command applies.")]
States = Annotated[
    str,
    typer.Option(
        "--state",
        metavar="A,B",
        show_default=False,
        help="Applications of yours in these states, as in running,pending.",
    ),
]
Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        show_default=False,
        help="Applications of yours with this name; `train*` works too.",
    ),
]
OfScheduler = Annotated[
    str,
    typer.Option(
        "-s",
        "--scheduler",
        metavar="NAME",
        show_default=False,
        help="With --all, --state or --name: only this scheduler.",
    ),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Skip the confirmation.")]


class Selection(NamedTuple):
    """The flags that select applications.

    Attributes:
        every: all of them.
        state: in these states, a comma-separated list.
        name: with a name that matches this pattern.
        scheduler: of this scheduler.
    """

    every: bool
    state: str
    name: str
    scheduler: str


def selected(
    runner: Runner, session: Session, handles: Sequence[str], flags: Selection, applicable: Collection[str]
) -> list[ListAppResponse] | None:
    """Returns the caller's applications that the flags select, newest first; None if handles are given.

    Args:
        runner: used to query the schedulers.
        session: the command line.
        handles: the given handles.
        flags: the flags.
        applicable: the states to which the command applies, used without `--state`.

    Raises:
        UsageError: neither handles nor flags are given, or both.
    """
    if not any(flags):
        if not handles:
            raise UsageError(
                "no application given", hint="a handle, an app id, a name or @last; --all, --state or --name"
            )
        return None
    if handles:
        raise UsageError("handles cannot be combined with --all, --state, --name or -s")
    if not (flags.every or flags.state or flags.name):
        raise UsageError(
            f"-s {flags.scheduler} selects nothing alone", hint="with it: --all, --state or --name"
        )
    query = AppQuery(name=flags.name, states=states_of(flags.state) or frozenset(applicable))
    applications = [
        app for app in newest(gather(runner, session, flags.scheduler, [], query, own=True)) if app.is_own
    ]
    if not applications:
        note("no application of yours matches")
    return applications


def confirm(applications: Sequence[ListAppResponse], verb: str, *, yes: bool) -> bool:
    """Lists several applications on a terminal, and returns True if the user confirms.

    Without a terminal, or for a single application, no confirmation is requested.

    Args:
        applications: the applications affected.
        verb: the command.
        yes: the user has confirmed it already.
    """
    if yes or len(applications) < 2 or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return True
    rows = [
        [(app.app_id, ""), (parse_app_handle(app.app_handle).scheduler_backend, ""), (app.state.name, "")]
        for app in applications
    ]
    print_stderr("\n".join(table(rows, ("APP", "SCHEDULER", "STATE"), sys.stderr)))
    print_stderr(f"{verb} these {len(applications)} applications? [y/N]")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("nothing was changed")
    return False
