"""The runs of a sweep by their numbers: their handles, and errors where a run is expected."""

from __future__ import annotations

from torchx.errors import StateError, TorchxError
from torchx.specs.handles import PartOfJobException
from torchx.sweeps import requests, view
from torchx.sweeps.paths import paths_of
from torchx.sweeps.progress import PENDING, STATES


class NotStartedError(StateError):
    """A run has not started.

    Attributes:
        app_id: its sweep.
        number: its number.
        may_drop: the conductor of its sweep would start it.
    """

    app_id, number, may_drop = "", 0, False

    def drop(self) -> str:
        """Cancels the run, so that it is never started, and returns its state.

        Raises:
            StateError: the request cannot be written, or the conductor cannot be started.
        """
        paths = paths_of(self.app_id)
        scheduler = view.require(self.app_id).header.scheduler
        requests.send(paths, scheduler, {"r": requests.DROP, "runs": [self.number]})
        progress = requests.await_effect(paths, lambda progress: progress.has_ended(self.number))
        return STATES[progress.states[self.number - 1]]


def drop(app_id: str, run: str) -> None:
    """Cancels a run before its start; nothing if it has no application any more.

    Raises:
        TorchxError: its engine would start it, or there is no such run.
    """
    error = part_error(app_id, run)
    if not isinstance(error, NotStartedError):
        raise error
    if error.may_drop:
        error.drop()


def handle_of(app_id: str, run: str) -> str:
    """Returns the handle of a run; an empty text if it has not started.

    Args:
        app_id: the sweep.
        run: the number of the run.

    Raises:
        StateError: the sweep or the run does not exist, or the files are damaged.
    """
    sweep = view.require(app_id)
    chosen = sweep.numbered(int(run))
    if chosen is None:
        raise _absent(sweep, app_id, run)
    return view.handle_of(sweep.header, chosen)


def _absent(sweep: view.Sweep, app_id: str, run: str) -> StateError:
    return StateError(
        f"{app_id} has no run {run}: its last one is {len(sweep.runs)}",
        hint=f"all runs: torchx results {app_id}",
        code="unknown_run",
        facts={"given": run},
    )


def part_error(app_id: str, run: str = "", *, gone: bool = False) -> TorchxError:
    """Returns the error about a run that has not started or does not exist, or about a missing number.

    Args:
        app_id: the sweep.
        run: the number of the run; empty if none is given.
        gone: its engine has no application of it any more.

    Raises:
        StateError: the sweep does not exist, or its files are damaged.
    """
    sweep = view.require(app_id)
    all_runs = f"all runs: torchx results {app_id}"
    chosen = None
    if run.isdecimal():
        chosen = sweep.numbered(int(run))
    if run and chosen is None:
        return _absent(sweep, app_id, run)
    if chosen is not None and chosen.started is None:
        reason = ""
        if chosen.message:
            reason = f": {chosen.message}"
        error = NotStartedError(
            f"run {run} of {app_id} has not started: it is {chosen.state}{reason}",
            hint=all_runs,
            code="not_running",
            facts={"replica": run},
        )
        error.app_id, error.number = app_id, chosen.number
        error.may_drop = chosen.state == STATES[PENDING] and not sweep.header.native
        return error
    if gone:
        return StateError(f"run {run} of {app_id} was deleted", hint=all_runs, code="unknown_application")
    return PartOfJobException(
        f"{app_id} is a sweep, expected one of its runs", hint=f"the first one: {app_id}/1   {all_runs}"
    )
