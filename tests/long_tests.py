"""Long tests: CI runs the tests marked `long`; a run without them prints how many it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

COMMAND = "make test-long"
CLUSTERS = {"slurm", "gridengine", "kubernetes"}
"""Markers of tests on a cluster."""

OUTPUT = "long tests left out"
"""Key of the number of deselected long tests in the report of a worker process to the main process."""


class LongTests:
    """A plugin that counts the long tests that a run does not select."""

    def __init__(self) -> None:
        self.left_out = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Counts the long tests among deselected ones; those of a cluster have a command of their own."""
        names = [{mark.name for mark in item.iter_markers()} for item in items]
        self.left_out += sum("long" in marks and not marks & CLUSTERS for marks in names)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Reports the number to the main process; each worker process selects the same tests."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[OUTPUT] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the number of a worker process; one that was killed has none."""
        self.left_out = max(self.left_out, getattr(node, "workeroutput", {}).get(OUTPUT, 0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the number and the command that runs these tests, in a run that leaves them out."""
        if self.left_out and "not long" in terminalreporter.config.option.markexpr:
            plural = "s are" if self.left_out > 1 else " is"
            terminalreporter.write_line(
                f"{self.left_out} long test{plural} not selected; run them: {COMMAND}"
            )
