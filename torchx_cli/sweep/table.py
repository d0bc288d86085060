"""The results of the runs of a sweep as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx.printable import memory_size
from torchx.sweeps.results import names_of
from torchx_cli.sweep.best import metric_text
from torchx_cli.terminal import masking
from torchx_cli.terminal.output import state_cell
from torchx_cli.terminal.times import duration
from torchx_cli.terminal.units import cores, percent, written

if TYPE_CHECKING:
    from torchx.sweeps.results import Result

OPTIONAL = 5
"""The number of columns at the end that are left out if no run has a value."""


def rows_of(found: Sequence[Result]) -> tuple[list[list[tuple[str, str]]], list[str]]:
    """Returns the rows of the table and the heads; measurements without any value are left out."""
    parameters, metrics = names_of(found)
    heads = ["RUN", *parameters, "STATE", *metrics, "TIME", "MEMORY", "CPU", "GPU", ""]
    rows = [_row(result, parameters, metrics) for result in found]
    shown = [
        at for at, _ in enumerate(heads) if at < len(heads) - OPTIONAL or any(row[at][0] for row in rows)
    ]
    return [[row[at] for at in shown] for row in rows], [heads[at] for at in shown]


def _row(result: Result, parameters: Sequence[str], metrics: Sequence[str]) -> list[tuple[str, str]]:
    run = result.run
    masked = masking.mask({"parameters": run.parameters, "metrics": result.metrics})
    amounts = (
        written(result.duration, duration),
        written(run.memory, memory_size),
        written(run.cpu, cores),
        written(run.gpu, percent),
    )
    return [
        (str(run.number), ""),
        *((str(masked["parameters"].get(name, "")), "") for name in parameters),
        state_cell(run.state),
        *((metric_text(masked["metrics"].get(name)), "") for name in metrics),
        *((amount, "") for amount in amounts),
        (_end(result), "dim"),
    ]


def _end(result: Result) -> str:
    run = result.run
    if run.state != "FAILED":
        return ""
    if run.code is not None and not run.message:
        return f"exit {run.code}"
    return run.message
