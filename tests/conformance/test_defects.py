"""The conformance suite notices what is wrong: a scheduler with a defect fails the test for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from test_local_cwd import OnProcesses

from torchx.jobs.paths import Home, user_home
from torchx.schedulers.docker.scheduler import DockerScheduler
from torchx.schedulers.local.request import PopenRequest
from torchx.schedulers.local.scheduler import LocalScheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Sample
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState
from torchx.testing import Ability, AbilityConformance, Meaning, SchedulerConformance, meanings_of_page


class Suite(OnProcesses, SchedulerConformance, AbilityConformance):
    """The suite as a plugin author has it; its tests are called one by one here."""

    __test__ = False
    patience = 5.0
    page = None


class Forgetful(LocalScheduler):
    """Describes an application without what it was given."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        report = super().describe(app_id)
        return report and replace(report, roles=[replace(role, env={}) for role in report.roles])


class Untruthful(LocalScheduler):
    """Tells what was cancelled as failed."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        report = super().describe(app_id)
        return report and replace(report, state=AppState(min(report.state, AppState.FAILED)))


class Deaf(LocalScheduler):
    """Returns everything, whatever the query."""

    def log_iter(self, app_id: str, role_name: str, k: int = 0, *args: Any, **more: Any) -> Iterable[str]:
        return super().log_iter(app_id, role_name, k)


class Silent(LocalScheduler):
    """Says nothing of what it cannot do."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[PopenRequest]:
        info = super()._submit_dryrun(app, cfg)
        info.notes.clear()
        return info


class Hasty(LocalScheduler):
    """Starts all again, whatever the policy says."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[PopenRequest]:
        from torchx.specs.app import RetryPolicy

        for role in app.roles:
            role.retry_policy = RetryPolicy.APPLICATION
        return super()._submit_dryrun(app, cfg)


class Writing(LocalScheduler):
    """Writes a file in a query for an application."""

    def exists(self, app_id: str) -> bool:
        (Home(user_home()).path / "visited").touch()
        return super().exists(app_id)


class Guessing(LocalScheduler):
    """Measures what cannot be measured."""

    wrong: AppUsage

    def usage(self, app_id: str) -> AppUsage | None:
        return self.wrong


def fails(
    scheduler: type[LocalScheduler | DockerScheduler], test: str, *arguments: Any, suite: type[Suite] = Suite
) -> str:
    """Returns with what message a test of the suite fails."""
    tests = suite()
    tests._submitted = []
    made = scheduler("torchx")
    try:
        with pytest.raises(AssertionError) as found:
            getattr(tests, test)(made, *arguments)
    finally:
        for app_id in tests._submitted:
            made.delete(app_id)
    return str(found.value)


def test_what_is_forgotten_is_noticed() -> None:
    assert "`describe` returns `env` as {}" in fails(Forgetful, "test_describe_loses_nothing")


def test_a_wrong_state_is_noticed() -> None:
    assert "FAILED" in fails(Untruthful, "test_cancel_ends_it")


def test_a_query_that_writes_is_noticed() -> None:
    assert "/visited" in fails(Writing, "test_queries_change_nothing")


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (ReplicaUsage("worker", 0, 1, Sample(1.0, 1.0, cpu=-1.0)), "returns Sample"),
        (ReplicaUsage("worker", 1, 1, Sample(1.0, 1.0)), "measures worker/1: no replica"),
        (ReplicaUsage("worker", 0, 1, Sample(1.0, 1.0), running=True), "reports worker/0 as running"),
        (ReplicaUsage("worker", 0, 1, Sample(1.0, 1.0), (Sample(1.0, 1.0, memory=-5),)), "memory=-5"),
    ],
)
def test_wrong_measurements_are_noticed(
    measured: ReplicaUsage, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guessing, "wrong", AppUsage((measured,), "test"), raising=False)
    assert message in fails(Guessing, "test_queries_change_nothing")


@pytest.mark.parametrize(
    "test",
    [
        "test_each_stream_can_be_read_alone",
        "test_a_pattern_chooses_lines",
        "test_pattern_is_searched_in_text_that_is_returned",
    ],
)
def test_lines_that_were_not_requested_are_noticed(test: str) -> None:
    assert fails(Deaf, test)


def test_what_is_declared_as_lacking_has_to_be_refused() -> None:
    class Lacking(Suite):
        lacks = (Ability.STREAMS, Ability.WAITS)

    report = fails(Deaf, "test_each_stream_can_be_read_alone", suite=Lacking)
    assert "`streams` is declared as lacking" in report
    report = fails(LocalScheduler, "test_waiting_ends_with_the_application", suite=Lacking)
    assert re.search(r"LocalScheduler implements .*\.Waits, but `lacks` names it", report)


def test_a_policy_that_is_not_followed_is_noticed() -> None:
    from torchx.specs.app import RetryPolicy

    report = fails(Hasty, "test_a_policy_selects_the_restarted_replicas", RetryPolicy.REPLICA)
    assert "the starts of each replica by REPLICA" in report


def test_a_silently_ignored_field_is_noticed() -> None:
    field = "test_a_field_means_what_is_declared"
    report = fails(Silent, field, "mounts")
    assert "`mounts` is declared as warned, but no note mentions it" in report

    class Wrong(Suite):
        fields = {  # noqa: RUF012
            "retry_policy=ROLE": Meaning.REJECTED,
            "resource.cpu": Meaning.IGNORED,
        }

    assert "silently ignored" in fails(Silent, field, "mounts", suite=Wrong)
    report = fails(LocalScheduler, field, "retry_policy=ROLE", suite=Wrong)
    assert "declared as rejected, but a dry-run accepts it" in report


def test_an_ignored_field_that_changes_the_request_is_noticed() -> None:
    class Wrong(Suite):
        image = "any"
        cfg = {}  # noqa: RUF012
        fields = {"resource.cpu": Meaning.IGNORED}  # noqa: RUF012

    report = fails(DockerScheduler, "test_a_field_means_what_is_declared", "resource.cpu", suite=Wrong)
    assert "declared as ignored, but adds lines to the request: ['    NanoCpus: 1" in report


def test_former_names_of_meanings_still_work() -> None:
    for former, meaning in (("TOLD", "warned"), ("REFUSED", "rejected"), ("UNUSED", "ignored")):
        assert Meaning[former] is Meaning(meaning)
    for former, meaning in (("told", "WARNED"), ("refused", "REJECTED"), ("not used", "IGNORED")):
        assert Meaning(former) is Meaning[meaning]
        page = f"| field of Role | a |\n|---|---|\n| `args` | {former}: as before |\n"
        assert meanings_of_page(page, "a") == {"args": Meaning[meaning]}
    assert [meaning.name for meaning in Meaning] == ["HONOURED", "WARNED", "REJECTED", "IGNORED"]


def test_a_page_that_says_otherwise_is_noticed() -> None:
    page = "| field of Role | a | b |\n|---|---|---|\n| `args`, `env` | warned: no | the same |\n"
    assert meanings_of_page(page, "b") == {"args": Meaning.WARNED, "env": Meaning.WARNED}
    with pytest.raises(AssertionError, match="no column `c`, but a, b"):
        meanings_of_page(page, "c")
    with pytest.raises(AssertionError, match="2 cells instead of 3"):
        meanings_of_page(page + "| `image` | warned |\n", "b")
    with pytest.raises(AssertionError, match="no table"):
        meanings_of_page("nothing", "b")
