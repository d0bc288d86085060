"""The rules at their edges: each of these cases was broken by a small change that no other test noticed."""

from __future__ import annotations

from supervisor.test_policy import ONE_ROLE, gang, run

from torchx.supervisor.policy import End, Gang, Retry, RoleRules, Start, Stop

TWO = RoleRules("w", range(2))


def test_the_defaults() -> None:
    g = Gang([RoleRules("w", range(2), 9)])
    assert run(g, g.begin()) == [Start((0, 1), 0.0)]
    for number, delay in enumerate([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0], start=1):
        assert g.exited(0, False) == [
            Retry("APPLICATION", 0, number, 9, delay),
            Stop((1,), "w/0 failed; application restarts"),
        ]
        assert run(g, g.exited(1, False, stopped=True)) == [Start((0, 1), delay)]
    g = Gang([TWO])
    run(g, g.begin())
    assert g.exited(0, False) == [Stop((1,), "w/0 failed")], "no retry, and the others end"


def test_a_replica_that_was_stopped_has_not_failed() -> None:
    g = gang(RoleRules("w", range(2), 1), fail_fast=False)
    assert g.exited(0, False, stopped=True) == []
    assert g.exited(1, True) == [End("SUCCEEDED")]
    g = gang(TWO)
    assert g.exited(0, False, stopped=True) == []
    assert g.first_failure is None


def test_replica_that_fails_after_cancellation_has_not_failed() -> None:
    g = gang(RoleRules("w", range(2), 1))
    assert g.cancel() == [Stop((0, 1), "cancelled")]
    assert g.exited(0, False) == []
    assert g.exited(1, True) == [End("CANCELLED")]


def test_a_failed_application_that_is_cancelled_has_failed() -> None:
    g = gang()
    assert g.exited(1, False) == [Stop((0, 2), "w/1 failed")]
    assert g.cancel() == [Stop((0, 2), "cancelled")]
    assert g.exited(0, False) == []
    assert g.exited(2, False) == [End("FAILED", 1)]


def test_without_fail_fast_earlier_failure_does_not_end_cancellation() -> None:
    g = gang(fail_fast=False)
    assert g.exited(0, False) == []
    assert g.cancel() == [Stop((1, 2), "cancelled")]
    assert g.exited(1, False) == []
    assert g.exited(2, False) == [End("CANCELLED")], "no first failure: the end is the caller's"


def test_the_first_of_several_failures_is_named() -> None:
    g = gang(fail_fast=False)
    assert g.exited(2, False) == []
    assert g.exited(0, False) == []
    assert g.exited(1, True) == [End("FAILED", 2)]


def test_a_failure_ends_what_was_about_to_start_again() -> None:
    g = gang(RoleRules("a", range(1), 1, "REPLICA"), RoleRules("b", range(1, 3)))
    assert g.exited(0, False) == [Retry("REPLICA", 0, 1, 1, 2.0), Start((0,), 2.0)]
    assert g.wants(0)
    assert g.exited(1, False) == [Stop((2,), "b/0 failed")]
    assert not g.wants(0)
    assert g.exited(2, False, stopped=True) == [End("FAILED", 1)]


def test_a_start_stands_until_it_is_reported() -> None:
    g = Gang(ONE_ROLE)
    assert g.begin() == [Start((0, 1, 2), 0.0)]
    assert g.wants(0) and g.wants(2)
    g.started(0)
    assert not g.wants(0) and g.wants(1)
    assert g.exited(0, True) == [], "the others have not even started"
    g.started(1)
    assert g.exited(1, True) == []
    assert g.wants(2)
    assert g.exited(2, True) == [End("SUCCEEDED")], "it ended before its start was reported"
    assert not g.wants(2)


def test_an_end_is_reported_once() -> None:
    g = gang(RoleRules("w", range(1)))
    assert g.exited(0, True) == [End("SUCCEEDED")]
    assert g.exited(0, True) == []
    assert g.cancel() == []
    assert not g.cancelled


def test_start_that_fails_after_failure_or_cancellation() -> None:
    g = gang()
    g.exited(1, False)
    assert g.give_up(0) == [Stop((2,), "the start failed")]
    assert g.exited(2, False, stopped=True) == [End("FAILED", 1)], "the first one is named"
    g = Gang([TWO])
    g.begin()
    g.started(0)
    assert g.cancel() == [Stop((0,), "cancelled")]
    assert g.give_up(1) == [Stop((0,), "the start failed")]
    assert g.exited(0, False) == [End("CANCELLED")], "it was to end anyway"


def test_start_that_fails_has_failed_whatever_is_cancelled_afterwards() -> None:
    g = Gang([TWO])
    g.begin()
    g.started(0)
    assert g.give_up(1) == [Stop((0,), "the start failed")]
    assert g.cancel() == [Stop((0,), "cancelled")]
    assert g.exited(0, False) == [End("FAILED", 1)]


def test_used_retries_count_when_a_story_is_taken_up() -> None:
    for key, policy in ((0, "REPLICA"), ("role w", "ROLE"), ("application", "APPLICATION")):
        used: dict[str | int, int] = {key: 1}
        g = Gang([RoleRules("w", range(1), 2, policy)], backoff=3.0, used_retries=used)
        run(g, g.begin())
        assert run(g, g.exited(0, False)) == [Retry(policy, 0, 2, 2, 6.0), Start((0,), 6.0)]
        assert used == {key: 2}
        assert g.exited(0, False) == [End("FAILED", 0)]


def test_more_retries_than_allowed_are_no_reason_for_another() -> None:
    g = Gang([RoleRules("w", range(1), 2)], used_retries={"application": 3})
    assert run(g, g.begin()) == [Start((0,))]
    assert Start((0,)).delay == 0.0
    assert g.exited(0, False) == [End("FAILED", 0)]


def test_a_role_restart_leaves_that_of_another_role_alone() -> None:
    a, b = RoleRules("a", range(2), 1, "ROLE"), RoleRules("b", range(2, 4), 1, "ROLE")
    g = gang(a, b)
    assert g.exited(0, False) == [Retry("ROLE", 0, 1, 1, 2.0), Stop((1,), "a/0 failed; role restarts")]
    assert g.exited(3, False) == [Retry("ROLE", 3, 1, 1, 2.0), Stop((2,), "b/1 failed; role restarts")]
    assert run(g, g.exited(2, False, stopped=True)) == [Start((2, 3), 2.0)]
    assert run(g, g.exited(1, False, stopped=True)) == [Start((0, 1), 2.0)]


def test_a_restart_takes_along_what_waits_for_its_own() -> None:
    g = gang(RoleRules("a", range(1), 1, "REPLICA"), RoleRules("b", range(1, 2), 1))
    assert g.exited(0, False) == [Retry("REPLICA", 0, 1, 1, 2.0), Start((0,), 2.0)]
    assert g.exited(1, False) == [Retry("APPLICATION", 1, 1, 1, 2.0), Start((0, 1), 2.0)]
    g.started(1)
    assert g.exited(1, False) == [End("FAILED", 1)], "no retry is left, and what waits is not started"
    assert not g.wants(0)
