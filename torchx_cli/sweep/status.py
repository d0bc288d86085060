"""The status of a sweep as text: a summary, and the runs that failed, run or wait."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, TextIO

from torchx.scheduling.responses import local_time
from torchx.specs.handles import parse_app_handle
from torchx.sweeps.view import require
from torchx_cli.sweep.best import shown
from torchx_cli.terminal.output import paint
from torchx_cli.terminal.status_text import aligned, status_lines
from torchx_cli.terminal.times import duration, span
from torchx_cli.terminal.units import written

if TYPE_CHECKING:
    from torchx.specs.status import AppStatus
    from torchx.sweeps.records import Run

MOST_RUNS = 16
"""Sweeps with more runs than this list only notable ones."""

MOST_OF_A_STATE = 8
"""Maximum number of notable runs of one state."""


def sweep_lines(handle: str, status: AppStatus, stream: TextIO) -> list[str]:
    """Returns the lines of `torchx status` about a sweep, without the first failure.

    Args:
        handle: the sweep.
        status: its status.
        stream: the output stream.

    Raises:
        StateError: it does not exist, or its files are damaged.
    """
    app_id = parse_app_handle(handle).app_id
    sweep = require(app_id)
    lines = status_lines(handle, replace(status, roles=[]), [], stream)
    if len(sweep.runs) > MOST_RUNS:
        runs = [
            run for state in ("FAILED", "RUNNING") for run in islice(sweep.in_state(state), MOST_OF_A_STATE)
        ]
    else:
        runs = list(sweep.runs)
    lines += run_lines(runs, stream)
    if len(runs) < len(sweep.runs):
        more = f"  {len(sweep.runs) - len(runs):,} more are not shown (to list all: torchx results)"
        lines.append(paint(more, "dim", stream))
    return lines


def run_lines(runs: list[Run], stream: TextIO) -> list[str]:
    """Returns an aligned line for each run."""
    rows = [(str(run.number), run.state, _time(run), _end(run), shown(run.parameters)) for run in runs]
    return aligned(rows, stream)


def _time(run: Run) -> str:
    return written(span(local_time(run.started), local_time(run.ended)), duration)


def _end(run: Run) -> str:
    if run.state != "FAILED":
        return ""
    if run.code is not None:
        return f"exit {run.code}"
    return run.message[:60]
