"""The conformance suite notices what is wrong: a scheduler with a defect fails the test for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from test_local_cwd import OnProcesses

from torchx.schedulers.docker.scheduler import DockerScheduler
from torchx.schedulers.local.request import PopenRequest
from torchx.schedulers.local.scheduler import LocalScheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.app import AppDef
from torchx.specs.dryrun import AppDryRunInfo
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
        told = super().describe(app_id)
        return told and replace(told, roles=[replace(role, env={}) for role in told.roles])


class Untruthful(LocalScheduler):
    """Tells what was cancelled as failed."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        told = super().describe(app_id)
        return told and replace(told, state=AppState(min(told.state, AppState.FAILED)))


class Deaf(LocalScheduler):
    """Gives all there is, whatever is asked for."""

    def log_iter(self, app_id: str, role_name: str, k: int = 0, *asked: Any, **more: Any) -> Iterable[str]:
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
    assert "`env` is described as {}" in fails(Forgetful, "test_describe_loses_nothing")


def test_a_wrong_state_is_noticed() -> None:
    assert "FAILED" in fails(Untruthful, "test_cancel_ends_it")


@pytest.mark.parametrize("test", ["test_each_stream_can_be_read_alone", "test_a_pattern_chooses_lines"])
def test_lines_that_were_not_asked_for_are_noticed(test: str) -> None:
    assert fails(Deaf, test)


def test_what_is_declared_as_lacking_has_to_be_refused() -> None:
    class Lacking(Suite):
        lacks = (Ability.STREAMS, Ability.WAITS)

    told = fails(Deaf, "test_each_stream_can_be_read_alone", suite=Lacking)
    assert "`streams` is declared as lacking" in told
    told = fails(LocalScheduler, "test_waiting_ends_with_the_application", suite=Lacking)
    assert re.search(r"LocalScheduler is a .*\.Waits, and `lacks` says that it is none", told)


def test_a_policy_that_is_not_followed_is_noticed() -> None:
    from torchx.specs.app import RetryPolicy

    told = fails(Hasty, "test_a_policy_says_what_is_started_again", RetryPolicy.REPLICA)
    assert "how often each replica was started by REPLICA" in told


def test_what_is_ignored_in_silence_is_noticed() -> None:
    field = "test_a_field_means_what_is_declared"
    told = fails(Silent, field, "mounts")
    assert "`mounts` is declared as told, and no note says that it is not honoured" in told

    class Wrong(Suite):
        fields = {  # noqa: RUF012
            "retry_policy=ROLE": Meaning.REFUSED,
            "resource.cpu": Meaning.UNUSED,
        }

    assert "ignored in silence" in fails(Silent, field, "mounts", suite=Wrong)
    told = fails(LocalScheduler, field, "retry_policy=ROLE", suite=Wrong)
    assert "declared as refused, and a dry-run takes it" in told


def test_what_is_declared_as_not_used_and_changes_the_request_is_noticed() -> None:
    class Wrong(Suite):
        image = "any"
        cfg = {}  # noqa: RUF012
        fields = {"resource.cpu": Meaning.UNUSED}  # noqa: RUF012

    told = fails(DockerScheduler, "test_a_field_means_what_is_declared", "resource.cpu", suite=Wrong)
    assert "declared as not used, but the request has these lines for it: ['  nano_cpus: 1" in told


def test_a_page_that_says_otherwise_is_noticed() -> None:
    page = "| field of Role | a | b |\n|---|---|---|\n| `args`, `env` | told: no | the same |\n"
    assert meanings_of_page(page, "b") == {"args": Meaning.TOLD, "env": Meaning.TOLD}
    with pytest.raises(AssertionError, match="no column `c`, but a, b"):
        meanings_of_page(page, "c")
    with pytest.raises(AssertionError, match="2 cells in place of 3"):
        meanings_of_page(page + "| `image` | told |\n", "b")
    with pytest.raises(AssertionError, match="no table"):
        meanings_of_page("nothing", "b")
