"""Errors for a sweep, or one of its runs by number, where the handle of an application is expected."""

from __future__ import annotations

from torchx.errors import StateError, TorchxError
from torchx.specs.handles import PartOfJobException, make_app_handle
from torchx.sweeps import view
from torchx.sweeps.paths import paths_of


def part_error(app_id: str, run: str = "") -> TorchxError:
    """Returns the error with the handle of a run, or with the command that prints the handles of all runs.

    Args:
        app_id: the sweep.
        run: the number of the run; empty if none is given.

    Raises:
        StateError: the sweep does not exist, or its files are damaged.
    """
    sweep = view.require(paths_of(app_id), app_id)
    all_runs = f"the handles of its runs: torchx results -o csv {app_id}"
    if not run:
        return PartOfJobException(f"{app_id} is a sweep, expected one of its runs", hint=all_runs)
    chosen = next((each for each in sweep.runs if str(each.number) == run), None)
    if chosen is None:
        return StateError(f"{app_id} has no run {run}: it has {len(sweep.runs)} runs", hint=all_runs)
    if not chosen.app_id:
        return StateError(
            f"run {run} of {app_id} has not started: it is {chosen.state}",
            hint=f"all runs: torchx results {app_id}",
            code="not_running",
            facts={"replica": run},
        )
    handle = make_app_handle(sweep.header.scheduler, sweep.header.session, chosen.app_id)
    return PartOfJobException(
        f"run {run} of {app_id} is a separate application", hint=f"use its handle: {handle}"
    )
