"""Attached sweeps: a line for each run that ends, Ctrl-C, and the result."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchx.errors import TorchxError
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.specs.handles import parse_app_handle
from torchx.specs.status import is_terminal
from torchx.sweeps.paths import SweepPaths, paths_of
from torchx.sweeps.plan import Plan
from torchx_cli.terminal import attach
from torchx_cli.terminal.interrupts import EXIT_INTERRUPTED, Interrupts
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import note, paint_state, print_stderr
from torchx_cli.terminal.times import duration

with lazy_imports:
    import shlex

    from torchx.scheduling import logs
    from torchx_cli.folding import printing as folding_printing

if TYPE_CHECKING:
    from torchx.runner.api import Runner

PAUSE = 0.1
"""Seconds between two reads of the journal."""

CHECK_EVERY = 1.0
"""Minimum seconds between two checks that the conductor is alive, or of the states that the engine has."""


def shown(parameters: Mapping[str, str]) -> str:
    """Returns parameters as text.

    >>> shown({"lr": "0.1", "name": "a b"})
    "lr=0.1 name='a b'"
    """
    return mask_text(" ".join(f"{name}={shlex.quote(value)}" for name, value in parameters.items()))


def to_the_end(runner: Runner, handle: str, position: int, *, logs: bool = False) -> int:
    """Prints the ends of runs until all have ended; returns the exit code of the command.

    Args:
        runner: used to cancel the sweep.
        handle: the sweep.
        position: the bytes of its journal with earlier ends, which are not printed.
        logs: print the logs of the runs instead.
    """
    with Interrupts() as interrupts:
        interrupts.arm(attach.app_id_of(handle), lambda: runner.cancel(handle), lambda: runner.kill(handle))
        if logs:
            _print_logs(runner, handle)
        else:
            _Ends(runner, handle, position).follow()
        status = runner.wait(handle)
    if status is None:
        note(f"{handle} is no longer known")
        return 1
    attach.print_result(runner, handle, status, seen=False)
    return EXIT_INTERRUPTED if interrupts.count else attach.exit_code(status)


def _print_logs(runner: Runner, handle: str) -> None:
    printer = folding_printing.printer_of(sys.stderr, ())
    attach.show_logs(runner, handle, logs.LogQuery(follow=True), printer)


class _Ends:
    """Prints a line for each run that ends from now on.

    Args:
        runner: used to start the conductor again if it was killed.
        handle: the sweep.
        position: the bytes of its journal with earlier ends.
    """

    def __init__(self, runner: Runner, handle: str, position: int) -> None:
        self._runner, self._handle = runner, handle
        self._paths: SweepPaths = paths_of(parse_app_handle(handle).app_id)
        self._position = position

    def follow(self) -> None:
        """Prints lines until all runs have ended."""
        plan = Plan(self._paths)
        due = begun = time.monotonic()
        try:
            while not self._print(plan):
                now = time.monotonic()
                if now >= due:
                    due = now + max(self._runner.pause_after(self._handle, now - begun), CHECK_EVERY)
                    if not locks.is_held(self._paths.lock):
                        current = self._runner.poll(self._handle)  # starts a conductor, if needed
                        if current is None or is_terminal(current.state):
                            self._print(plan)
                            return
                time.sleep(PAUSE)
        finally:
            plan.close()

    def _print(self, plan: Plan) -> bool:
        """Prints the ends that were recorded; returns True if all runs have ended."""
        done = False
        for line in self._new_lines():
            try:
                entry = json.loads(line)
                kind = entry["e"]
                if kind == "end":
                    print_stderr(self._line(plan, entry["n"], entry["s"], entry.get("b"), entry["t"]))
                done = kind == "done"
            except (ValueError, KeyError, TypeError, RecursionError, TorchxError):
                continue
        return done

    def _line(self, plan: Plan, number: int, state: str, begun: float | None, ended: float) -> str:
        total = plan.extend()
        lasted = "" if begun is None else f" in {duration(ended - begun)}"
        run = plan.run(number)
        return f"run {number} of {total}  {paint_state(state, sys.stderr)}{lasted}  {shown(run.parameters)}"

    def _new_lines(self) -> list[bytes]:
        try:
            with open(files.open_file(self._paths.journal), "rb") as file:
                if os.fstat(file.fileno()).st_size == self._position:
                    return []
                file.seek(self._position)
                data = file.read()
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        self._position += end
        return data[:end].splitlines()
