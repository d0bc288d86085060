"""`torchx list`: list applications, newest first."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.printable import one_line
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
from torchx_cli.selection import gather, newest
from torchx_cli.session import session_of
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import Row, emit, note, output_format, say, state_cell
from torchx_cli.terminal.times import ago, duration, iso, optional_time, span
from torchx_cli.terminal.units import written

with lazy_imports:
    from torchx_cli.terminal import measurement_text

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
            help=f"Show only these columns: {', '.join(COLUMNS)}. With -o json: the handle and these.",
        ),
    ] = "",
    all_users: Annotated[
        bool,
        typer.Option("--all-users", help="Also list other users' applications, if the scheduler can."),
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
    elif limit != 0:
        _note_none(query)
    if more:
        note(f"only the newest {TABLE_LIMIT} are shown (to see more: torchx list -n 500)")


def _note_none(query: AppQuery) -> None:
    if query == AppQuery():
        note("no applications")
    else:
        note("no matching applications")


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
        cpu, memory, gpu = measurement_text.cells(measurement_text.usage_of(runner, app.app_handle))
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
        **({} if runner is None else measurement_text.usage_data(runner, app.app_handle)),
    }
