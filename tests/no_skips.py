"""In CI a skipped test is a failure: the tools that tests need have to be installed there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


class NoSkips:
    """A plugin, as the hooks of a conftest.py do not see tests outside of its folder, such as doctests."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Handles the report of a test."""
        return _failed((yield), item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        """Handles the report of a file, which may be skipped as a whole."""
        return _failed((yield), collector.nodeid)


def _failed(report: Any, node: str) -> Any:
    """Returns a report, as that of a failure if it is of a skip in CI."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"{node} was skipped in CI: {reason}"
    return report
