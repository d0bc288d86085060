"""The best run of a sweep, and its parameters and metrics as text."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.runner import sweeps
from torchx.sweeps import results
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import note

with lazy_imports:
    import shlex

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.sweeps.results import Value
    from torchx.sweeps.view import Sweep


def shown(parameters: Mapping[str, str]) -> str:
    """Returns parameters as text.

    >>> shown({"lr": "0.1", "name": "a b"})
    "lr=0.1 name='a b'"
    """
    return mask_text(" ".join(f"{name}={shlex.quote(value)}" for name, value in parameters.items()))


def metric_text(value: Value) -> str:
    """Returns the value of a metric as text."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def print_best(runner: Runner, sweep: Sweep) -> None:
    """Prints the best run, if there are few enough to read the ends of their logs, and they have a metric."""
    if len(sweep.runs) > results.MOST_COMPARED:
        return
    with suppress(TorchxError, OSError):  # the runs have ended without it
        found = results.best(list(sweeps.results_of(runner, sweep, usual=True)))
        if found is not None:
            result, name = found
            value = f"{name} {metric_text(result.metrics[name])}"
            note(f"  best:     run {result.run.number}  {shown(result.run.parameters)}  {value}")
