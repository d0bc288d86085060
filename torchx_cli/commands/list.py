"""`torchx list`: list applications, newest first."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.command_line import ArgumentError
from torchx.config.options import valid_options
from torchx.errors import AbsentError, UsageError
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx.runner.survey import survey
from torchx.scheduling.query import AppQuery
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import is_terminal
from torchx.suggestions import did_you_mean
from torchx_cli.applications import named_identity
from torchx_cli.flags import (
    Cfg,
    Json,
    Name,
    Output,
    States,
    WithTags,
    count,
    lines_option,
    option,
    scheduler_option,
    since_option,
    split_list,
    states_of,
    tag_query,
    tags_text,
)
from torchx_cli.session import Session, session_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import Row, emit, note, output_format, paint, say, state_cell
from torchx_cli.terminal.times import ago, duration, iso, optional_time, span
from torchx_cli.terminal.units import written

with lazy_imports:
    import heapq

    from torchx_cli import run_request
    from torchx_cli.terminal import usage_text

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse

COLUMNS = {
    "app": "APP",
    "name": "NAME",
    "scheduler": "SCHEDULER",
    "state": "STATE",
    "started": "STARTED",
    "time": "TIME",
    "exit": "EXIT",
    "message": "",
    "cpu": "CPU",
    "memory": "MEMORY",
    "gpu": "GPU",
    "tags": "TAGS",
}
"""The columns of the table, and their heads."""

MEASURED = ("cpu", "memory", "gpu")
"""The columns with measurements: mean CPU cores, peak memory and mean GPU utilisation of a replica."""

KEYS = {
    "app": "app_id",
    "started": "started_at",
    "time": "duration",
    "exit": "exit_code",
    "message": "msg",
    **dict.fromkeys(MEASURED, "usage"),
}
"""The keys of columns in JSON, if they have other names."""

DEFAULT = tuple(name for name in COLUMNS if name not in (*MEASURED, "tags"))

TABLE_LIMIT = 100
"""Default number of applications in the table; JSON contains all."""


def list_(
    ctx: typer.Context,
    scheduler: Annotated[str, scheduler_option("Only this scheduler (default: all).")] = "",
    cfg: Cfg = [],  # noqa: B006  # typer makes a new one
    state: States = "",
    name: Name = "",
    tag: WithTags = [],  # noqa: B006
    since: Annotated[str, since_option("those submitted")] = "",
    lines: Annotated[
        str,
        lines_option(f"At most N applications (default: {TABLE_LIMIT} in the table, all with -q and -o)."),
    ] = "",
    columns: Annotated[
        str,
        option(
            "--columns",
            metavar="A,B",
            help=f"Show only these columns: {', '.join(COLUMNS)}. JSON has the handle and their keys.",
        ),
    ] = "",
    all_users: Annotated[
        bool,
        typer.Option(
            "--all-users", help="Include applications of other users, if the scheduler supports it."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print handles only, one per line.")] = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """List running and ended applications, newest first."""
    form = output_format(output, json)
    for other, is_given in ((f"-o {form}", form != "text"), ("--columns", columns)):
        if quiet and is_given:
            raise UsageError(f"-q cannot be combined with {other}", code="conflicting_flags")
    chosen = _columns(columns)
    limit = count("-n", lines)
    query = AppQuery(
        name=name,
        states=states_of(state),
        since=optional_time("--since", since),
        tags=tag_query(tag),
    )
    session = session_of(ctx)
    with session.runner() as runner:
        applications = newest(gather(runner, session, scheduler, cfg, query, all_users=all_users))
        if form != "text":
            found = islice(applications, limit)
            emit(list(_data(found, chosen if columns else (), runner)), form, hide=True)
            return
        if quiet:
            handles = [f"{one_line(app.app_handle)}\n" for app in islice(applications, limit)]
            say("".join(handles), end="", hide=True)
            return
        shown = list(islice(applications, TABLE_LIMIT if limit is None else limit))
        more = limit is None and next(applications, None) is not None
        rows = [_row(app, chosen, runner) for app in shown]
    if shown:
        heads = list(map(COLUMNS.__getitem__, chosen))
        spare = () if columns else _spare_columns(shown)  # chosen ones are never dropped
        say("\n".join(table(rows, heads, sys.stdout, spare=spare)), hide=True)
    else:
        note("no matching applications" if query != AppQuery() else "no applications")
    if more:
        note(f"only the newest {TABLE_LIMIT} are shown (to see more: torchx list -n 500)")


def _data(apps: Iterable[ListAppResponse], chosen: Sequence[str], runner: Runner) -> Iterator[Object]:
    """Yields the handles of applications and the data of the chosen columns; all data without a choice."""
    keys = {"handle", *(KEYS.get(name, name) for name in chosen)}
    for app in apps:
        data = as_data(app, runner if "usage" in keys else None)
        yield {key: data[key] for key in data if key in keys or not chosen}


def _columns(text: str) -> list[str]:
    """Returns the chosen columns.

    Raises:
        UsageError: a column does not exist.
    """
    chosen = split_list(text)
    for name in chosen:
        if name not in COLUMNS:
            raise ArgumentError(
                f"--columns: unknown column `{name}`",
                flag="--columns",
                given=name,
                hint=did_you_mean(name, COLUMNS, f"columns: {', '.join(COLUMNS)}"),
            )
    return list(dict.fromkeys(chosen)) or list(DEFAULT)


def _spare_columns(applications: list[ListAppResponse]) -> list[str]:
    """Returns the columns that a narrow window drops first; names last, unless the ids begin with them."""
    redundant = all(app.app_id.startswith(app.name) for app in applications)
    spare = ["TIME", "SCHEDULER", "STARTED", "EXIT"]
    if redundant:
        return ["NAME", *spare]
    return [*spare, "NAME"]


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
        return _prefetch(runner.select(backend, query, options or None))

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


def _prefetch(applications: Iterator[ListAppResponse]) -> Iterator[ListAppResponse]:
    """Fetches the first application, so that an unreachable scheduler raises its error here."""
    return itertools.chain(list(islice(applications, 1)), applications)


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


def _row(app: ListAppResponse, chosen: Sequence[str] = DEFAULT, runner: Runner | None = None) -> Row:
    """Returns the cells of an application; the runner reads its measurements, if they are chosen."""
    started = app.started_at or app.submitted_at
    lasted = span(app.started_at, app.ended_at, over=is_terminal(app.state))
    if app.exit_code is None:
        code = "-"
    else:
        code = str(app.exit_code)
    cells: dict[str, str | tuple[str, str]] = {
        "app": app.app_id,
        "name": app.name,
        "scheduler": parse_app_handle(app.app_handle).scheduler_backend,
        "state": state_cell(app.state.name),
        "started": written(started, ago),
        "time": written(lasted, duration),
        "exit": "" if app.state.name == "RUNNING" else code,
        # no repetition of the state
        "message": ("" if str(app.msg).upper() == app.state.name else app.msg, "dim"),
        "tags": tags_text(app.tags),
    }
    if runner is not None and any(name in MEASURED for name in chosen):
        cpu, memory, gpu = usage_text.cells(usage_text.usage_of(runner, app.app_handle))
        cells |= {"cpu": cpu, "memory": memory, "gpu": gpu}
    return [cells[name] for name in chosen]


def as_data(app: ListAppResponse, runner: Runner | None = None) -> Object:
    """Returns an application as plain data.

    Args:
        app: the application.
        runner: used to read its measurements; None for data without them.
    """
    lasted = span(app.started_at, app.ended_at, over=True)
    return {
        **named_identity(app.app_handle, app.name),
        "state": app.state.name,
        "submitted_at": iso(app.submitted_at),
        "started_at": iso(app.started_at),
        "ended_at": iso(app.ended_at),
        "duration": lasted,
        "exit_code": app.exit_code,
        "msg": app.msg,
        "tags": app.tags,
        **({} if runner is None else usage_text.usage_data(runner, app.app_handle)),
    }
