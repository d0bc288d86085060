"""Attached sweeps: a line for each run that ends, Ctrl-C, and the result."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.scheduling.responses import local_time
from torchx.specs.status import AppState
from torchx.sweeps import parts, progress, requests
from torchx.sweeps.paths import SweepPaths, paths_of
from torchx.sweeps.plan import Plan
from torchx.sweeps.view import failure_of, require
from torchx_cli.sweep import best
from torchx_cli.sweep.best import shown
from torchx_cli.terminal import attach
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED, Interrupts, Terminated, Terminations
from torchx_cli.terminal.notices import Follower
from torchx_cli.terminal.output import (
    fit,
    is_terminal,
    note,
    paint,
    paint_state,
    print_stderr,
    width_of,
    wrap_command,
)
from torchx_cli.terminal.times import duration, whole

with lazy_imports:
    from torchx.scheduling import logs
    from torchx_cli.terminal import drawing, streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchx.runner.api import Runner
    from torchx.specs.status import AppStatus
    from torchx.sweeps.view import Sweep

PAUSE = 0.1
"""Seconds between two reads of the journal."""


ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
"""The states of runs that have ended."""

LEAST = 8
"""Minimum columns of the parameters of a run."""


def to_the_end(
    runner: Runner,
    handle: str,
    position: int,
    *,
    logs: bool,
    fold: bool,
    numbers: Sequence[int] = (),
    form: str = "text",
) -> int:
    """Shows the progress of a sweep until its runs have ended; returns the exit code of the command.

    Args:
        runner: used to cancel the sweep.
        handle: the sweep.
        position: the bytes of its journal with earlier ends, which are not printed.
        logs: print the logs of the runs instead.
        fold: print equal lines of several runs once.
        numbers: the runs that the command has requested (default: all): it waits for them, Ctrl-C cancels
            them, and the result is theirs.
        form: the output format; with JSON, SIGTERM does not end the process, so that the handle is printed.
    """
    try:
        return _follow(runner, handle, position, logs, fold, numbers, form)
    except Terminated as end:
        return end.exit_code


def _follow(
    runner: Runner, handle: str, position: int, logs: bool, fold: bool, numbers: Sequence[int], form: str
) -> int:
    app_id = attach.app_id_of(handle)
    sweep = require(app_id)
    if len(numbers) == len(sweep.runs):
        numbers = ()
    with Terminations(form) as terminations, Interrupts() as interrupts, interrupts.reporting(app_id):
        terminations.arm()
        interrupts.arm(
            app_id,
            lambda: _end(runner.cancel, handle, numbers),
            lambda: _end(runner.kill, handle, numbers),
        )
        if logs:
            _print_logs(runner, handle, fold, numbers)
        with nullcontext() if logs else _Ends(paths_of(app_id), position, interrupts, numbers):
            status = _wait(runner, handle, numbers)
    if status is None:
        note(f"{handle} is no longer known")
        return 1
    sweep = require(app_id)
    if numbers:
        status, sweep = part_of(status, sweep, numbers)
    print_result(runner, handle, status, sweep)
    if interrupts.count:
        return EXIT_INTERRUPTED
    return attach.exit_code(status)


def _wait(runner: Runner, handle: str, numbers: Sequence[int]) -> AppStatus | None:
    """Waits until runs of a sweep have ended, all if none are given; returns the status of the sweep."""
    app_id, begun = attach.app_id_of(handle), time.monotonic()
    while True:
        timeout = None
        if numbers:
            timeout = runner.pause_after(handle, time.monotonic() - begun)
        status = runner.wait(handle, timeout=timeout)
        if status is None or status.is_terminal():
            return status
        sweep = require(app_id)
        # before the request is read, runs that start again have their earlier end
        if requests.has_unread(paths_of(app_id), sweep.progress):
            continue
        if all(run is None or run.state in ENDED for run in map(sweep.numbered, numbers)):
            return status


def _end(end: Callable[[str], None], handle: str, numbers: Sequence[int]) -> None:
    """Ends a sweep, or some of its runs.

    Args:
        end: ends an application.
        handle: the sweep.
        numbers: the runs; all if none are given.

    Raises:
        StateError: a run cannot be cancelled.
    """
    if not numbers:
        end(handle)
    app_id = attach.app_id_of(handle)
    for number in map(str, numbers):
        if run := parts.handle_of(app_id, number):
            end(run)
        else:
            parts.drop(app_id, number)


def part_of(status: AppStatus, sweep: Sweep, numbers: Sequence[int]) -> tuple[AppStatus, Sweep]:
    """Returns the status of some runs of a sweep, and a sweep of these runs.

    Args:
        status: the status of the whole sweep.
        sweep: the sweep.
        numbers: the runs.
    """
    runs = list(filter(None, map(sweep.numbered, numbers)))
    states = {AppState[run.state] for run in runs}
    order = (AppState.RUNNING, AppState.PENDING, AppState.FAILED, AppState.CANCELLED)
    failed = min(
        (run for run in runs if run.state == "FAILED"), key=lambda run: run.ended or 0.0, default=None
    )
    begun = [run.started for run in runs if run.started is not None]
    ended = [run.ended for run in runs if run.ended is not None]
    names = {str(run.number) for run in runs}
    status = replace(
        status,
        state=next((state for state in order if state in states), AppState.SUCCEEDED),
        first_failure=failure_of(sweep.header, failed),
        roles=[role for role in status.roles if role.role in names],
        started_at=local_time(min(begun, default=None)),
        ended_at=local_time(max(ended, default=None)),
        msg=f"the whole sweep: {status.msg}",
    )
    return status, replace(sweep, runs=runs, failed=failed)


def print_any_result(runner: Runner, handle: str, status: AppStatus, *, seen: bool) -> None:
    """Prints the result of an application, which may be a sweep, on stderr.

    Args:
        runner: used to read the logs.
        handle: the application.
        status: the final status.
        seen: whether its logs were shown.
    """
    if runner.scheduler_of(handle).has_runs:
        print_result(runner, handle, status)
    else:
        attach.print_result(runner, handle, status, seen=seen)


def print_result(runner: Runner, handle: str, status: AppStatus, sweep: Sweep | None = None) -> None:
    """Prints the result of a sweep on stderr: the commands that follow, and the best run.

    Args:
        runner: used to read the logs.
        handle: the sweep.
        status: the final status.
        sweep: the runs to compare (default: all).
    """
    app_id = attach.app_id_of(handle)
    attach.print_result(runner, handle, status, seen=False)
    if status.state.name != "SUCCEEDED":
        _print_command("again:  ", f"torchx rerun --failed {app_id}")
    if len(status.roles) > 1:
        _print_command("results:", f"torchx results {app_id}")
        best.print_best(runner, sweep or require(app_id))


def _print_command(head: str, command: str) -> None:
    head = "  " + paint(head, "dim", sys.stderr) + "  "
    print_stderr(wrap_command(head, command, sys.stderr))


def _print_logs(runner: Runner, handle: str, fold: bool, numbers: Sequence[int]) -> None:
    printer = streaming.printer_of(sys.stderr, (), fold=fold)
    chosen: dict[str, frozenset[int]] = {str(number): frozenset() for number in numbers}
    attach.show_logs(runner, handle, logs.LogQuery(chosen, follow=True), printer)


class _Ends(Follower):
    """Prints a line for each run that ends from now on; on a terminal, one line that is replaced.

    Args:
        paths: the files of the sweep.
        position: the bytes of its journal with earlier ends.
        interrupts: its messages replace the line.
        numbers: the runs; all if none are given.
    """

    def __init__(
        self, paths: SweepPaths, position: int, interrupts: Interrupts, numbers: Sequence[int]
    ) -> None:
        super().__init__()
        self._paths, self._position, self._numbers = paths, position, frozenset(numbers)
        self._screen = drawing.Screen(sys.stderr) if is_terminal(sys.stderr) else None
        interrupts.line_drawn = self._screen is not None  # soon: a message before it clears an empty line
        self._drawn = ""

    def __exit__(self, *exception: object) -> None:
        super().__exit__(None)  # it ends soon, also after an interrupt: it reads a file

    def follow(self) -> None:
        """Prints lines until all runs have ended."""
        plan, last = Plan(self._paths), False
        self._progress = progress.load(self._paths, plan.extend())
        try:
            while not last:
                last = self.stop.is_set()
                self._print(plan)
                self._draw(plan)
                self.stop.wait(PAUSE)
        finally:
            if self._screen is not None:
                self._screen.clear()

    def _print(self, plan: Plan) -> None:
        """Prints the ends that were recorded since the last call."""
        for entry in progress.parse_lines(self._new_data()):
            with suppress(LookupError, TypeError, ValueError, AttributeError, TorchxError):  # damaged
                self._progress.apply(entry)
                if entry["e"] == "end" and self._screen is None and self._has(entry["n"]):
                    print_stderr(self._line(plan, entry))

    def _has(self, number: int) -> bool:
        return not self._numbers or number in self._numbers

    def _draw(self, plan: Plan) -> None:
        """Replaces the line on a terminal: how many runs have ended, and which one runs longest."""
        width = width_of(sys.stderr)
        if self._screen is None or width is None:
            return
        width -= len("^C")
        now = self._progress
        now.grow(plan.extend())
        counts = now.counts(self._numbers)
        total, failed = sum(counts.values()), ""
        if "FAILED" in counts:
            failed = f" ({counts['FAILED']:,} failed)"
        done = total - counts.get("PENDING", 0) - counts.get("RUNNING", 0)
        line = f"{done:,} of {total:,} done{failed}, "
        running = [n for n in now.begun if now.states[n - 1] == progress.RUNNING and self._has(n)]
        if not running:
            line += "waiting"
        else:
            others = ""
            if running[1:]:
                others = f" and {len(running) - 1:,} more"
            end = f"{others}  {whole(time.time() - now.begun[running[0]])}"
            line += "running: "
            room = max(width - len(line) - len(end), LEAST)
            line += fit(shown(plan.run(running[0]).parameters), room) + end
        line = fit(line, width)
        if line != self._drawn:
            self._screen.show([line])
            self._drawn = line

    def _line(self, plan: Plan, entry: progress.Entry) -> str:
        lasted = ""
        if "b" in entry:
            lasted = f" after {duration(entry['t'] - entry['b'])}"
        end = f"{paint_state(entry['s'], sys.stderr)}{lasted}"
        return (
            f"run {entry['n']} of {plan.extend()}  {end}  {shown(plan.run(entry['n']).parameters)}".rstrip()
        )

    def _new_data(self) -> bytes:
        """Returns the lines of the journal since the last call."""
        try:
            with open(files.open_file(self._paths.journal), "rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        whole_lines = data[: data.rfind(b"\n") + 1]
        self._position += len(whole_lines)
        return whole_lines
