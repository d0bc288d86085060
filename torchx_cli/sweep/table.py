"""The results of the runs of a sweep as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

HEADS = {"run": "RUN", "state": "STATE", "duration": "TIME", "memory": "MEMORY", "cpu": "CPU", "gpu": "GPU"}
"""The heads of the columns besides parameters and metrics."""


def rows_of(found: Sequence[Result]) -> tuple[list[list[tuple[str, str]]], list[str]]:
    """Returns the rows of the table and the heads; columns without any value are left out."""
    parameters, metrics = names_of(found)
    columns: list[tuple[str, list[tuple[str, str]]]] = [
        (HEADS["run"], [(str(result.run.number), "") for result in found])
    ]
    masked = [masking.mask({"parameters": r.run.parameters, "metrics": r.metrics}) for r in found]
    for name in parameters:
        columns.append((name, [(str(each["parameters"].get(name, "")), "") for each in masked]))
    states = [state_cell(result.run.state) for result in found]
    columns.append((HEADS["state"], states))
    for name in metrics:
        columns.append((name, [(metric_text(each["metrics"].get(name)), "") for each in masked]))
    columns += [(head, cells) for head, cells in _optional(found) if any(text for text, _ in cells)]
    return [list(row) for row in zip(*(cells for _, cells in columns), strict=True)], [h for h, _ in columns]


def _optional(found: Sequence[Result]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yields the columns that may be empty."""
    amounts = [_amounts(result) for result in found]
    for name in ("duration", "memory", "cpu", "gpu"):
        yield HEADS[name], [(each[name], "") for each in amounts]
    yield "", [(_end(result), "dim") for result in found]


def _amounts(result: Result) -> dict[str, str]:
    run = result.run
    return {
        "duration": written(result.duration, duration),
        "memory": written(run.memory, memory_size),
        "cpu": written(run.cpu, cores),
        "gpu": written(run.gpu, percent),
    }


def _end(result: Result) -> str:
    run = result.run
    if run.state != "FAILED":
        return ""
    if run.code is not None and not run.message:
        return f"exit {run.code}"
    return run.message
