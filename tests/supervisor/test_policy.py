"""The rules of retries, fail-fast and the end, with no process in sight."""

from __future__ import annotations

import pytest

from torchx.supervisor.policy import Action, End, Gang, Retry, RoleRules, Start, Stop

ONE_ROLE = [RoleRules("w", range(3))]


def gang(*roles: RoleRules, fail_fast: bool = True) -> Gang:
    made = Gang(list(roles) or ONE_ROLE, fail_fast=fail_fast, backoff=2.0, max_backoff=5.0)
    run(made, made.begin())
    return made


def run(gang: Gang, actions: list[Action]) -> list[Action]:
    """Carries out the starts at once and returns the actions."""
    for action in actions:
        if isinstance(action, Start):
            for replica in action.replicas:
                gang.started(replica)
    return actions


def test_all_succeed() -> None:
    g = gang()
    assert g.exited(0, True) == []
    assert g.exited(2, True) == []
    assert g.exited(1, True) == [End("SUCCEEDED")]


def test_an_application_without_replicas_has_succeeded() -> None:
    assert Gang([]).begin() == [End("SUCCEEDED")]


def test_first_failure_ends_the_others_and_is_named() -> None:
    g = gang()
    assert g.exited(1, False) == [Stop((0, 2), "w/1 failed")]
    assert g.exited(0, False, stopped=True) == []
    assert g.exited(2, False) == [End("FAILED", 1)]  # failed by itself, but later


def test_without_fail_fast_the_others_go_on() -> None:
    g = gang(fail_fast=False)
    assert g.exited(1, False) == []
    assert g.exited(0, True) == []
    assert g.exited(2, True) == [End("FAILED", 1)]


def test_without_fail_fast_final_failure_survives_restarts() -> None:
    g = gang(RoleRules("a", range(1)), RoleRules("b", range(1, 3), 2), fail_fast=False)
    assert g.exited(0, False) == []
    again = Stop((2,), "b/0 failed; application restarts")
    assert g.exited(1, False) == [Retry("APPLICATION", 1, 1, 2, 2.0), again]
    assert run(g, g.exited(2, False, stopped=True)) == [Start((1, 2), 2.0)]
    assert g.exited(1, True) == []
    assert g.exited(2, True) == [End("FAILED", 0)]


def test_replica_retries_are_counted_per_replica_with_backoff() -> None:
    g = gang(RoleRules("w", range(2), max_retries=3, retry_policy="REPLICA"))
    assert run(g, g.exited(0, False)) == [Retry("REPLICA", 0, 1, 3, 2.0), Start((0,), 2.0)]
    assert run(g, g.exited(0, False)) == [Retry("REPLICA", 0, 2, 3, 4.0), Start((0,), 4.0)]
    assert run(g, g.exited(1, False)) == [Retry("REPLICA", 1, 1, 3, 2.0), Start((1,), 2.0)]
    assert run(g, g.exited(0, False)) == [Retry("REPLICA", 0, 3, 3, 5.0), Start((0,), 5.0)]
    assert g.exited(0, False) == [Stop((1,), "w/0 failed")]
    assert g.exited(1, False, stopped=True) == [End("FAILED", 0)]


def test_role_restart_waits_for_members_and_leaves_others_alone() -> None:
    g = gang(RoleRules("a", range(2), 1, "ROLE"), RoleRules("b", range(2, 3)))
    assert run(g, g.exited(0, False)) == [
        Retry("ROLE", 0, 1, 1, 2.0),
        Stop((1,), "a/0 failed; role restarts"),
    ]
    assert run(g, g.exited(1, False, stopped=True)) == [Start((0, 1), 2.0)]
    assert run(g, g.exited(0, True)) == []
    assert run(g, g.exited(1, True)) == []
    assert run(g, g.exited(2, True)) == [End("SUCCEEDED")]


def test_application_restart_starts_also_those_that_had_succeeded() -> None:
    g = gang(RoleRules("w", range(3), 1))
    assert run(g, g.exited(0, True)) == []
    assert run(g, g.exited(1, False)) == [
        Retry("APPLICATION", 1, 1, 1, 2.0),
        Stop((2,), "w/1 failed; application restarts"),
    ]
    # a second failure while the first is being answered is part of it
    assert run(g, g.exited(2, False)) == [Start((0, 1, 2), 2.0)]
    for replica in (0, 1):
        assert run(g, g.exited(replica, True)) == []
    assert run(g, g.exited(2, False)) == [End("FAILED", 2)]


def test_application_restart_swallows_a_role_restart_under_way() -> None:
    g = gang(RoleRules("a", range(2), 1, "ROLE"), RoleRules("b", range(2, 3), 1))
    run(g, g.exited(0, False))
    run(g, g.exited(2, False))
    assert run(g, g.exited(1, False, stopped=True)) == [Start((0, 1, 2), 2.0)]


def test_cancel_ends_what_runs_and_drops_what_waits() -> None:
    g = gang(RoleRules("w", range(2), 1, "REPLICA"))
    g.exited(0, False)
    assert g.wants(0)
    assert g.cancel() == [Stop((1,), "cancelled")]
    assert not g.wants(0)
    assert g.cancel() == []
    assert g.exited(1, True) == [End("CANCELLED")]


def test_cancel_of_what_has_ended_changes_nothing() -> None:
    g = gang(RoleRules("w", range(1)))
    assert g.exited(0, True) == [End("SUCCEEDED")]
    assert g.cancel() == []


def test_cancel_before_the_first_start_ends_at_once() -> None:
    g = Gang(ONE_ROLE)
    g.begin()
    assert g.cancel() == [End("CANCELLED")]


def test_failed_start_undoes_whole_start_without_a_retry() -> None:
    g = Gang([RoleRules("w", range(3), 5)])
    g.begin()
    g.started(0)
    assert g.give_up(1) == [Stop((0,), "the start failed")]
    assert not g.wants(2)
    assert g.exited(0, False, stopped=True) == [End("FAILED", 1)]


@pytest.mark.parametrize("policy", ["REPLICA", "ROLE", "APPLICATION"])
@pytest.mark.parametrize("fail_fast", [True, False])
def test_a_replica_that_was_stopped_has_not_failed(policy: str, fail_fast: bool) -> None:
    """Whatever it returned when it was ended, no retry answers that, and no failure is named for it."""
    g = Gang([RoleRules("w", range(2), 5, policy)], fail_fast=fail_fast)
    g.begin()
    g.started(0)
    assert g.give_up(1) == [Stop((0,), "the start failed")]
    assert g.exited(0, False, stopped=True) == [End("FAILED", 1)]
    g = gang(RoleRules("w", range(2), 5, policy), fail_fast=fail_fast)
    assert g.exited(0, False, stopped=True) == []
    assert g.first_failure is None
    assert g.used_retries == {}


@pytest.mark.parametrize("policy", ["REPLICA", "ROLE", "APPLICATION"])
def test_retries_run_out_under_every_policy(policy: str) -> None:
    g = gang(RoleRules("w", range(1), 2, policy))
    for _ in range(2):
        assert any(isinstance(action, Start) for action in run(g, g.exited(0, False)))
    assert g.exited(0, False) == [End("FAILED", 0)]
