"""The applications that commands list, or that they affect: the given ones, or all that match flags."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from torchx.config.options import valid_options
from torchx.errors import AbsentError, UsageError
from torchx.lazy import lazy_imports
from torchx.runner.survey import survey
from torchx.scheduling.query import AppQuery
from torchx.specs.handles import parse_app_handle
from torchx_cli.flags import argument, scheduler_option, since_option, states_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import counted, is_terminal, note, paint, print_stderr
from torchx_cli.terminal.times import optional_time

with lazy_imports:
    import heapq
    import shlex

    from torchx.runner import origins
    from torchx_cli import run_request

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse
    from torchx_cli.session import Session

MOST_MATCHES = 5
"""Number of applications in the data of an error."""

Handles = Annotated[
    list[str] | None,
    argument(
        metavar="[HANDLE]...", help="Applications: handles, app ids or prefixes of them, names, or @last."
    ),
]
All = Annotated[
    bool,
    typer.Option("--all", help="All your applications. Narrow with --state, --name or --since."),
]
Since = Annotated[str, since_option("those submitted")]
OfScheduler = Annotated[str, scheduler_option("With --all, --state, --name or --since: only this scheduler.")]
Everywhere = Annotated[
    bool,
    typer.Option("--everywhere", help="On shared engines, also your applications submitted from elsewhere."),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Skip the confirmation.")]


class Selection(NamedTuple):
    """The arguments that select applications: handles or flags.

    Attributes:
        handles: the given handles.
        every: all applications.
        state: in these states, a comma-separated list.
        name: with a name that matches this pattern.
        since: submitted since then.
        scheduler: of this scheduler.
        everywhere: on shared engines, also those that were not submitted from this state home.
    """

    handles: Sequence[str]
    every: bool
    state: str
    name: str
    since: str = ""
    scheduler: str = ""
    everywhere: bool = True


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
        UsageError: neither handles nor flags are given, or both; or the user cannot
            confirm without a terminal.
    """
    if not _selects_by_flags(selection):
        return list(selection.handles)
    query = AppQuery(
        name=selection.name,
        states=states_of(selection.state) or frozenset(applicable),
        since=optional_time("--since", selection.since),
    )
    found = newest(gather(runner, session, selection.scheduler, [], query, own=True))
    applications = [app for app in found if app.is_own]
    if not selection.everywhere:
        applications = from_here(runner, applications)
    if not applications:
        note("none of your applications matches")
    elif verb and not confirm(applications, verb):
        return None
    return [app.app_handle for app in applications]


def _reject_patterns(handles: Sequence[str]) -> None:
    """Rejects patterns in place of handles, which would be searched on all engines.

    Raises:
        UsageError: one is a pattern.
    """
    for handle in handles:
        if "*" in handle:
            raise UsageError(
                f"`{handle}` is a pattern, not an application",
                hint=f"by a pattern of names: --name {shlex.quote(handle)}",
                code="invalid_handle",
                facts={"given": handle},
            )


def _selects_by_flags(selection: Selection) -> bool:
    """Returns True if flags select applications, False if handles name them.

    Raises:
        UsageError: neither are given, or both.
    """
    handles = selection.handles
    selects = selection.every or selection.state or selection.name or selection.since
    if not (selects or selection.scheduler):
        if not handles:
            raise UsageError(
                "no application given",
                hint="a handle, an app id, a name or @last; --all, --state, --name or --since",
                code="missing_argument",
            )
        _reject_patterns(handles)
        return False
    if handles:
        raise UsageError(
            "handles cannot be combined with --all, --state, --name, --since or -s", code="conflicting_flags"
        )
    if not selects:
        raise UsageError(
            f"-s {selection.scheduler} selects nothing alone",
            hint="with it: --all, --state, --name or --since",
            code="missing_argument",
        )
    return True


def from_here(runner: Runner, applications: Sequence[ListAppResponse]) -> list[ListAppResponse]:
    """Returns the applications of this state home; a note has the number of the others."""
    kept = origins.from_here(runner, applications)
    left = len(applications) - len(kept)
    if left:
        note(f"{counted(left, 'application')} submitted from elsewhere left out; to include: --everywhere")
    return kept


def confirm(applications: Sequence[ListAppResponse], verb: str, files: Sequence[str] = ()) -> bool:
    """Lists applications and files, and returns True if the user confirms on a terminal.

    Args:
        applications: the applications.
        verb: the command.
        files: the paths of files that it removes too.

    Raises:
        UsageError: without a terminal.
    """
    if applications:
        rows = [
            [app.app_id, parse_app_handle(app.app_handle).scheduler_backend, app.state.name]
            for app in applications
        ]
        print_stderr("\n".join(table(rows, ("APP", "SCHEDULER", "STATE"), sys.stderr, ["SCHEDULER"])))
    for path in files:
        print_stderr(path)
    counts = [(len(applications), "application"), (len(files), "leftover")]
    action = f"{verb} " + " and ".join(counted(count, noun) for count, noun in counts if count)
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise UsageError(
            f"confirm on a terminal to {action}: stdin or stderr is not one",
            hint="to skip the confirmation: --yes",
            code="not_confirmed",
            facts={"matches": [app.app_handle for app in applications[:MOST_MATCHES]]},
        )
    print_stderr(f"{action}? [y/N]")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("nothing was changed")
    return False


ALL_USERS = "all_users"
"""The run option of schedulers that can list the applications of other users."""


def newest(listings: list[Iterator[ListAppResponse]]) -> Iterator[ListAppResponse]:
    """Merges the applications of several schedulers, newest first."""
    if len(listings) == 1:
        return listings[0]

    return heapq.merge(*listings, key=attrgetter("order"), reverse=True)


def gather(
    runner: Runner,
    session: Session,
    scheduler: str,
    cfg: list[str],
    query: AppQuery,
    *,
    all_users: bool = False,
    own: bool = False,
    quiet: bool = False,
) -> list[Iterator[ListAppResponse]]:
    """Returns the matching applications of one scheduler, or of all reachable ones, newest first.

    Args:
        runner: used to query the schedulers.
        session: the command line.
        scheduler: the scheduler; empty for the configured one, or all.
        cfg: its run options, as given on the command line.
        query: selects the applications.
        all_users: include applications of other users, where supported.
        own: exclude these, even if the configuration includes them.
        quiet: do not print the names of schedulers that are not reached.

    Raises:
        UsageError: the scheduler does not exist or does not support these options.
        TorchxError: the requested scheduler cannot be queried.
    """
    if not scheduler:
        scheduler = configured(runner, session, quiet)
    if cfg and not scheduler:
        raise UsageError("-cfg requires -s, as options belong to one scheduler")

    def select(backend: str) -> Iterator[ListAppResponse]:
        options = _options(runner, session, backend, cfg)
        if all_users and ALL_USERS in runner.scheduler_run_opts(backend):
            options[ALL_USERS] = True
        elif own and ALL_USERS in options:
            options[ALL_USERS] = False
        elif all_users and scheduler:
            raise UsageError(
                f"{backend} cannot list applications of other users",
                hint="omit --all-users",
                code="not_supported",
                facts={"scheduler": backend},
            )
        applications = runner.select(backend, query, options or None)
        # the first one at once, so that an unreachable scheduler raises its error here
        return itertools.chain(list(islice(applications, 1)), applications)

    if scheduler:
        return [select(scheduler)]

    answers = survey(runner.listed_backends(), select)
    failed = [k for k, v in answers.items() if isinstance(v, Exception) and not isinstance(v, AbsentError)]
    if failed and not quiet:
        note(
            paint(
                f"not reached: {', '.join(failed)} (details: torchx list -s {failed[0]})", "dim", sys.stderr
            )
        )
    return [answer for answer in answers.values() if not isinstance(answer, Exception)]


def configured(runner: Runner, session: Session, quiet: bool) -> str:
    """Returns the scheduler in `[cli:list]`; empty if none is set, or it is not installed."""
    setting = session.valid_config.section("cli:list").get("scheduler")
    if setting is None or setting.value in runner.listed_backends():
        if setting is not None:
            return setting.value
        return ""
    if not quiet:
        note(f"note: {setting.origin}: the scheduler `{setting.value}` is not installed; it is ignored")
    return ""


def _options(runner: Runner, session: Session, backend: str, cfg: list[str]) -> Object:
    config = session.valid_config
    if not cfg and not config.section(backend):
        return {}
    opts = runner.scheduler_run_opts(backend)
    configured, problems = valid_options(config, backend, opts)
    for error in problems:
        note(f"note: {error.message}; it is ignored")
    return {
        **{key: option.value for key, option in configured.items()},
        **run_request.typed_options(cfg, backend, opts),
    }
