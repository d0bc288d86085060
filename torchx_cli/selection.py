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
from torchx_cli.flags import argument, scheduler_option, states_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import is_terminal, note, print_stderr

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse
    from torchx_cli.session import Session

Handles = Annotated[
    list[str] | None,
    argument(
        metavar="[HANDLE]...", help="Applications: handles, app ids or prefixes of them, names, or @last."
    ),
]
All = Annotated[
    bool,
    typer.Option(
        "--all", help="All applications of yours to which the command applies; --state, --name: some of them."
    ),
]
OfScheduler = Annotated[str, scheduler_option("With --all, --state or --name: only this scheduler.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Skip the confirmation.")]


class Selection(NamedTuple):
    """The arguments that select applications: handles or flags.

    Attributes:
        handles: the given handles.
        every: all applications.
        state: in these states, a comma-separated list.
        name: with a name that matches this pattern.
        scheduler: of this scheduler.
    """

    handles: Sequence[str]
    every: bool
    state: str
    name: str
    scheduler: str


def selected(
    runner: Runner, session: Session, selection: Selection, applicable: Collection[str], verb: str = ""
) -> list[str] | None:
    """Returns the given handles, or those of the caller's applications that the flags select, newest first.

    Args:
        runner: used to query the schedulers.
        session: the command line.
        selection: the arguments.
        applicable: the states to which the command applies, used without `--state`.
        verb: the command, if the user has to confirm it.

    Returns:
        The handles, which are only checked if flags select them; None if the user does not confirm.

    Raises:
        UsageError: neither handles nor flags are given, or both.
    """
    handles, *flags = selection
    if not any(flags):
        if not handles:
            raise UsageError(
                "no application given",
                hint="a handle, an app id, a name or @last; --all, --state or --name",
                code="missing_argument",
            )
        return list(handles)
    if handles:
        raise UsageError(
            "handles cannot be combined with --all, --state, --name or -s", code="conflicting_flags"
        )
    if not (selection.every or selection.state or selection.name):
        raise UsageError(
            f"-s {selection.scheduler} selects nothing alone",
            hint="with it: --all, --state or --name",
            code="missing_argument",
        )
    query = AppQuery(name=selection.name, states=states_of(selection.state) or frozenset(applicable))
    applications = [
        app for app in newest(gather(runner, session, selection.scheduler, [], query, own=True)) if app.is_own
    ]
    if not applications:
        note("no application of yours matches")
    if verb and not _confirm(applications, verb):
        return None
    return [app.app_handle for app in applications]


def _confirm(applications: Sequence[ListAppResponse], verb: str) -> bool:
    """Lists several applications on a terminal, and returns True if the user confirms.

    Without a terminal, or for a single application, no confirmation is requested.
    """
    if len(applications) < 2 or not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
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
