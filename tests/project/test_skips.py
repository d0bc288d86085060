"""Tests of the rule that a skip in CI is a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from no_skips import NoSkips

from project.sources import ROOT


def handled(report: Any) -> Any:
    """Returns a report after the plugin has handled it."""
    collected = isinstance(report, pytest.CollectReport)
    hook: Any = NoSkips().pytest_make_collect_report if collected else NoSkips().pytest_runtest_makereport
    steps = hook(SimpleNamespace(nodeid="a.py::test"))
    next(steps)
    with pytest.raises(StopIteration) as stopped:
        steps.send(report)
    return stopped.value.value


def of_test(reason: str, outcome: Any = "skipped") -> pytest.TestReport:
    return pytest.TestReport("a.py::test", ("a.py", 1, "test"), {}, outcome, ("a.py", 1, reason), "call")


def of_file(reason: str) -> pytest.CollectReport:
    return pytest.CollectReport("a.py", "skipped", ("a.py", 1, reason), None)


@pytest.mark.parametrize("made", [of_test, of_file])
def test_a_skip_in_ci_is_a_failure(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    report = handled(made("Skipped: no tool"))
    assert (report.outcome, report.longrepr) == ("failed", "a.py::test was skipped in CI: Skipped: no tool")
    monkeypatch.delenv("CI")
    assert handled(made("Skipped: no tool")).outcome == "skipped"


def test_other_outcomes_are_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert handled(of_test("", "passed")).outcome == "passed"
    expected = of_test("a known defect")
    expected.wasxfail = "a known defect"
    assert handled(expected).outcome == "skipped"


def test_the_plugin_sees_all_tests(request: pytest.FixtureRequest) -> None:
    assert isinstance(request.config.pluginmanager.get_plugin("no-skips"), NoSkips)
    assert request.config.rootpath == ROOT
