"""`torchx results`: show the parameters, states and metrics of the runs of a sweep."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import UsageError
from torchx.runner import sweeps
from torchx.scheduling.responses import local_time
from torchx.sweeps import results
from torchx.sweeps.paths import BACKEND
from torchx_cli.applications import find
from torchx_cli.flags import Handle, Json, count, lines_option, option
from torchx_cli.session import session_of
from torchx_cli.sweep.table import rows_of
from torchx_cli.terminal import masking
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import emit, note, output_format, say
from torchx_cli.terminal.times import iso

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.sweeps.results import Result
    from torchx.sweeps.view import Sweep

TABLE_LIMIT = 100
"""Default number of runs in the table; other formats contain all."""


EXAMPLES = """\b
Examples:
  torchx results @last
  torchx results --best loss @last
  torchx results --metric acc --sort=-acc @last
"""


def results_(
    ctx: typer.Context,
    handle: Handle,
    metric: Annotated[
        list[str],
        option(
            "--metric",
            metavar="PATTERN",
            help="Read a metric from the logs: loss finds the last loss=0.3, loss: 0.3 or the like. Or give "
            r"a pattern, 'val_loss=([\d.]+)', perhaps with a name, 'loss:=total ([\d.]+)' (repeatable; "
            "default: loss, acc and the like). Tracked metrics are always shown.",
        ),
    ] = [],  # noqa: B006  # typer makes a new one
    sort: Annotated[
        str,
        option(
            "--sort",
            metavar="COLUMN",
            help="Sort by a parameter, a metric, run, state, duration, memory, cpu or gpu; --sort=-loss "
            "puts the largest first.",
        ),
    ] = "",
    best: Annotated[
        str,
        option(
            "--best",
            metavar="COLUMN",
            help="Show only the succeeded run with the smallest value; --best=-acc: with the largest. "
            "Reads metrics from the logs too.",
        ),
    ] = "",
    lines: Annotated[
        str, lines_option(f"At most N runs (default: {TABLE_LIMIT} in the table, all with -o).")
    ] = "",
    output: Annotated[
        str,
        option("-o", "--output", metavar="FORMAT", help="Output format: text (default), csv, json or yaml."),
    ] = "",
    json: Json = False,
) -> None:
    """Compare the runs of a sweep: parameters, state, time, measurements and metrics."""
    if output == "csv" and json:
        raise UsageError("--json cannot be combined with -o csv", code="conflicting_flags")
    if output == "csv":
        form = "csv"
    else:
        form = output_format(output, json)
    if best and (sort or lines):
        raise UsageError("--best cannot be combined with --sort or -n", code="conflicting_flags")
    limit, key, flag = count("-n", lines), sort, "--sort"
    none = "no runs"
    if best:
        limit, key, flag = 1, best, "--best"
        none = "no run has succeeded"
    session = session_of(ctx)
    with session.runner() as runner:
        full, described = find(runner, handle, full=True, prefer=[BACKEND])
        sweep = sweeps.sweep_of(runner, full, described)
        metrics = _metrics(metric, key.removeprefix("-"), flag, sweep)
        every = sweeps.results_of(runner, sweep, metrics, usual=not metric)
        if best:
            every = iter(results.sort(results.succeeded(every), best, "--best"))
        elif sort:
            every = iter(results.sort(list(every), sort))
        shown = TABLE_LIMIT if limit is None and form == "text" else limit
        found = list(islice(every, shown))
        more = len(sweep.runs) - len(found) if limit is None else 0
    _print(found, form, more, metrics, none)


def _metrics(texts: Sequence[str], column: str, flag: str, sweep: Sweep) -> list[results.Metric]:
    """Returns the metrics to read from the logs, with the one of `--sort` or `--best`."""
    metrics = [results.parse_metric(text) for text in texts]
    columns = (*results.COLUMNS, *(name for run in sweep.runs[:1] for name in run.parameters))
    if column and column not in (*columns, *(each.name for each in metrics)):
        metrics.append(results.parse_metric(column, flag))
    return metrics


def _print(
    found: Sequence[Result], form: str, more: int, metrics: Sequence[results.Metric], empty: str
) -> None:
    known = {name for result in found for name in (*result.metrics, *result.run.parameters)}
    for name in dict.fromkeys(each.name for each in metrics):
        if found and name not in known:
            note(f"note: --metric {name}: no line of these logs matches")
    if form == "csv":
        _print_csv(found)
    elif form != "text":
        emit([as_data(result) for result in found], form, hide=True)
    elif found:
        rows, heads = rows_of(found)
        say("\n".join(table(rows, heads, sys.stdout)), hide=True)
        if more:
            note(f"{more:,} more runs are not shown (to see more: -n 500)")
    else:
        note(empty)


def as_data(result: Result) -> Object:
    """Returns the result of a run as plain data."""
    run, lasted = result.run, result.duration
    if lasted is not None:
        lasted = round(lasted, 6)
    return {
        "run": run.number,
        "handle": result.handle or None,
        "state": run.state,
        "parameters": {name: results.number(value) for name, value in run.parameters.items()},
        "metrics": {name: _plain(value) for name, value in result.metrics.items()},
        "started_at": iso(local_time(run.started)),
        "ended_at": iso(local_time(run.ended)),
        "duration": lasted,
        "exit_code": run.code,
        "msg": run.message,
        "peak_memory": run.memory,
        "cpu": run.cpu,
        "gpu": run.gpu,
    }


def _plain(value: results.Value) -> results.Value:
    """Returns a value as JSON can have it: a number that is not finite as its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _print_csv(found: Sequence[Result]) -> None:
    """Prints a line of names and a line for each run; amounts are in seconds and bytes."""
    parameters, metrics = results.names_of(found)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    own = ("state", "duration", "exit_code", "peak_memory", "cpu", "gpu", "handle")
    writer.writerow(["run", *parameters, *metrics, *own])
    for result in found:
        data = masking.mask(as_data(result))
        values = [data["parameters"].get(name) for name in parameters]
        values += [data["metrics"].get(name) for name in metrics]
        writer.writerow([data["run"], *values, *(data[name] for name in own)])
    say(text.getvalue(), end="")
