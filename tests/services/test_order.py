"""The rules of services, without processes: the order of starts, and when services are ended."""

from __future__ import annotations

import pytest

from torchx.supervisor.policy import Action, End, Gang, Retry, RoleRules, Start, Stop

SERVER = RoleRules("server", range(1), service=True)
TRAINER = RoleRules("trainer", range(1, 3), after=("server",))


def gang(*roles: RoleRules, **rules: bool) -> Gang:
    return Gang(roles or (SERVER, TRAINER), backoff=0.0, **rules)


def run(g: Gang, actions: list[Action]) -> list[Action]:
    """Carries out the starts."""
    for action in actions:
        for n in action.replicas if isinstance(action, Start) else ():
            g.started(n)
    return actions


def test_role_starts_when_service_before_it_is_ready() -> None:
    g = gang()
    assert run(g, g.begin()) == [Start((0,))]
    assert run(g, g.ready(0)) == [Start((1, 2))]
    assert g.exited(1, True) == []
    assert g.needs(0)
    assert g.exited(2, True) == [Stop((0,), "no longer needed")]
    assert not g.needs(0)
    assert g.exited(0, False, stopped=True) == [End("SUCCEEDED")]


def test_role_starts_when_ordinary_role_before_it_has_succeeded() -> None:
    g = gang(RoleRules("make", range(2)), RoleRules("train", range(2, 3), after=("make",)))
    assert run(g, g.begin()) == [Start((0, 1))]
    assert g.exited(0, True) == []
    assert run(g, g.exited(1, True)) == [Start((2,))]
    assert g.exited(2, True) == [End("SUCCEEDED")]


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_service_that_ends_while_it_is_needed_has_failed(succeeded: bool, ready: bool) -> None:
    g = gang()
    run(g, g.begin())
    if ready:
        run(g, g.ready(0))
        assert g.exited(0, succeeded) == [Stop((1, 2), "server/0 failed")]
        g.exited(1, False, stopped=True)
        assert g.exited(2, False, stopped=True) == [End("FAILED", 0)]
    else:
        assert g.exited(0, succeeded) == [End("FAILED", 0)]


def test_service_restarts_alone_and_must_be_ready_again() -> None:
    server = SERVER._replace(max_retries=1, retry_policy="ROLE")
    g = gang(server, RoleRules("one", range(1, 2)), RoleRules("two", range(2, 3), after=("server", "one")))
    run(g, g.begin())
    assert g.ready(0) == []
    assert run(g, g.exited(0, True)) == [Retry("ROLE", 0, 1, 1, 0.0), Start((0,))]
    assert g.exited(1, True) == [], "the new server is not ready"
    assert run(g, g.ready(0)) == [Start((2,))]
    assert g.exited(2, True) == [Stop((0,), "no longer needed")]


def test_a_restart_of_the_application_keeps_the_order() -> None:
    g = gang(SERVER, TRAINER._replace(max_retries=1))
    run(g, g.begin())
    run(g, g.ready(0))
    assert g.exited(1, False)[1:] == [Stop((0, 2), "trainer/0 failed; application restarts")]
    assert g.exited(2, False, stopped=True) == []
    assert run(g, g.exited(0, False, stopped=True)) == [Start((0,), 0.0)]
    assert run(g, g.ready(0)) == [Start((1, 2))]


@pytest.mark.parametrize("ready", [True, False])
def test_the_failure_of_an_uncritical_service_is_no_failure(ready: bool) -> None:
    g = gang(SERVER._replace(critical=False), TRAINER)
    run(g, g.begin())
    if ready:
        run(g, g.ready(0))
        assert g.exited(0, False) == []
    else:
        assert run(g, g.exited(0, False)) == [Start((1, 2))], "roles after it do not wait for it"
    g.exited(1, True)
    assert g.exited(2, True) == [End("SUCCEEDED")]


def test_roles_after_failed_one_never_start_without_fail_fast() -> None:
    roles = (
        RoleRules("make", range(1)),
        RoleRules("train", range(1, 2), after=("make",)),
        RoleRules("server", range(2, 3), service=True),
        RoleRules("other", range(3, 4), after=("train",)),
    )
    g = gang(*roles, fail_fast=False)
    assert run(g, g.begin()) == [Start((0, 2))]
    assert g.exited(0, False) == [Stop((2,), "no longer needed")]
    assert g.exited(2, False, stopped=True) == [End("FAILED", 0)]


def test_a_cancellation_ends_services_and_drops_waiting_roles() -> None:
    g = gang()
    run(g, g.begin())
    assert g.cancel() == [Stop((0,), "cancelled")]
    assert g.ready(0) == []
    assert g.exited(0, False, stopped=True) == [End("CANCELLED")]


def test_next_run_after_time_limit_keeps_order() -> None:
    g = Gang((SERVER, TRAINER), requeues=1)
    run(g, g.begin())
    run(g, g.ready(0))
    assert g.expire() == [Stop((0, 1, 2), "time limit")]
    for n in (1, 2):
        assert g.exited(n, False, stopped=True) == []
    assert run(g, g.exited(0, False, stopped=True))[1:] == [Start((0,), 0.0)]
    g.notice()
    run(g, g.ready(0))
    assert g.exited(0, False) == [], "a service that ends because of the notice has not failed"
    g.exited(1, True)
    assert g.exited(2, True) == [End("SUCCEEDED")]


def test_service_that_fails_when_unneeded_has_not_failed() -> None:
    g = gang()
    run(g, g.begin())
    run(g, g.ready(0))
    g.exited(1, True)
    assert g.exited(2, True) == [Stop((0,), "no longer needed")]
    assert g.exited(0, False) == [End("SUCCEEDED")], "it ended before the signal reached it"


def test_an_order_may_have_many_roles() -> None:
    """The last one of a chain can start, as long as the first one runs."""
    count = 3000
    chain = [RoleRules(f"r{n}", range(n, n + 1), after=(f"r{n - 1}",) if n else ()) for n in range(count)]
    watcher = RoleRules("watcher", range(count, count + 1), service=True)
    g = gang(*chain, watcher)
    assert run(g, g.begin()) == [Start((0, count))]
    assert run(g, g.exited(0, True)) == [Start((1,))]
    assert g.exited(1, False) == [Stop((count,), "r1/0 failed")]


def test_damaged_record_with_a_cycle_delays_no_end() -> None:
    pair = [RoleRules("a", range(1), after=("b",)), RoleRules("b", range(1, 2), after=("a",))]
    g = gang(*pair, RoleRules("trainer", range(2, 3)))
    assert run(g, g.begin()) == [Start((2,))]
    assert g.exited(2, True) == [End("SUCCEEDED")]
