"""The rules of time limits, with no process in sight."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from supervisor.test_policy import gang, run

from torchx.scheduling.limits import LimitRule
from torchx.supervisor import limits
from torchx.supervisor.policy import End, Gang, Requeue, RoleRules, Start, Stop

TWO = RoleRules("w", range(2), max_retries=3)


def limited(*roles: RoleRules, requeues: int = 0, fail_fast: bool = True) -> Gang:
    made = gang(*(roles or (TWO,)), fail_fast=fail_fast)
    made.requeues = requeues
    return made


def test_limit_ends_all_replicas_and_is_no_failure() -> None:
    g = limited()
    assert g.expire() == [Stop((0, 1), "time limit")]
    assert g.expire() == [], "once"
    assert g.exited(1, True, stopped=True) == [], "the code after TERM has no meaning"
    assert g.exited(0, False, stopped=True) == [End("FAILED", None)]
    assert g.expired


def test_requeue_starts_all_replicas_and_counts_apart_from_retries() -> None:
    g = limited(requeues=2)
    for number in (1, 2):
        assert g.run == number
        g.expire()
        g.exited(0, False, stopped=True)
        assert run(g, g.exited(1, False, stopped=True)) == [Requeue(number, 2), Start((0, 1), 0.0)]
        assert not g.expired
    assert g.used_retries == {"time-limit": 2}
    g.expire()
    g.exited(0, False, stopped=True)
    assert g.exited(1, False, stopped=True) == [End("FAILED", None)]
    assert g.run == 3


def test_after_notice_end_is_interruption_and_others_may_save() -> None:
    g = limited(requeues=1)
    g.notice()
    assert g.exited(0, False) == [], "neither a retry nor the end of the other one"
    assert run(g, g.exited(1, False)) == [Requeue(1, 1), Start((0, 1), 0.0)]
    assert g.exited(0, True) == []
    g.notice()
    assert g.exited(1, False) == [End("FAILED", 1)], "no requeue is left"


def test_program_that_has_finished_after_notice_has_succeeded() -> None:
    g = limited(requeues=1)
    g.notice()
    assert g.exited(0, True) == []
    assert g.exited(1, True) == [End("SUCCEEDED")]


def test_a_failure_before_the_notice_is_retried() -> None:
    g = limited(RoleRules("w", range(1), 1), requeues=1)
    assert g.exited(0, False)[0] != Requeue(1, 1)


def test_the_limit_drops_a_waiting_retry() -> None:
    g = limited(RoleRules("w", range(1), 1))
    g.exited(0, False)
    assert g.wants(0)
    assert g.expire() == [End("FAILED", None)]


def test_a_cancelled_or_failed_application_is_not_requeued() -> None:
    g = limited(requeues=1)
    g.cancel()
    assert g.expire() == []
    g.exited(0, False, stopped=True)
    assert g.exited(1, False, stopped=True) == [End("CANCELLED")]
    g = limited(requeues=1)
    g.expire()
    g.cancel()
    g.exited(0, False, stopped=True)
    assert g.exited(1, False, stopped=True) == [End("CANCELLED")]
    g = limited(RoleRules("w", range(2)), requeues=1)
    g.exited(0, False)
    assert g.expire() == []
    assert g.exited(1, False, stopped=True) == [End("FAILED", 0)]
    assert not g.expired


def test_without_fail_fast_failed_replica_stays_failed_next_run() -> None:
    g = limited(RoleRules("w", range(2)), requeues=1, fail_fast=False)
    assert g.exited(0, False) == []
    g.expire()
    assert run(g, g.exited(1, False, stopped=True)) == [Requeue(1, 1), Start((1,), 0.0)]
    assert g.exited(1, True) == [End("FAILED", 0)]


def test_the_clock_begins_again_with_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, notes = [0.0], []
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr(limits, "time", clock)
    rules = Gang([RoleRules("w", range(1))])
    rules.begin()
    rules.started(0)
    record: Any = SimpleNamespace(cfg={"time_limit": "10s", "notice": "4s", "requeue_on": "time-limit:1"})
    paths: Any = SimpleNamespace(checkpoints=tmp_path / "checkpoints")
    replicas: Any = SimpleNamespace(by_pid={})
    policy = limits.Limits(record, paths, replicas, rules, lambda event, **_: notes.append(event))
    assert (policy.pause(), policy.due()) == (None, [])
    policy.begin()
    now[0] = 5.0
    policy.begin()
    assert (policy.pause(), policy.due()) == (1.0, [])
    now[0] = 12.0
    assert [policy.due() for _ in range(3)] == [[], [Stop((0,), "time limit")], []]
    assert policy.pause() is None
    requeue, start = rules.exited(0, False, stopped=True)
    assert (requeue, start) == (Requeue(1, 1), Start((0,)))
    policy.requeued(Requeue(1, 1))
    rules.started(0)
    now[0] = 20.0
    policy.begin()
    now[0] = 25.0
    assert (policy.pause(), policy.due()) == (1.0, [])
    now[0] = 26.0
    assert (policy.due(), policy.pause()) == ([], 4.0)
    assert notes == ["notice", "requeue", "notice"]


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"time_limit": "soon"}, "`time_limit` is `soon`, expected a duration"),
        ({"time_limit": "0"}, "`time_limit` is `0`"),
        ({"notice": "5m"}, "`notice` requires a time limit"),
        ({"time_limit": "1m", "notice": "1m"}, "expected less than the time limit, 1m"),
        ({"time_limit": "1m", "notice": "5s:KILL"}, "`KILL` is not a signal that a program can handle"),
        ({"time_limit": "1m", "notice": "5s:NO"}, "`NO` is not a signal"),
        ({"time_limit": "1m", "notice": "5s:"}, "`notice` is `5s:`, expected a duration and a signal"),
        ({"requeue_on": "time-limit"}, "requires a time limit"),
        ({"requeue_on": "node,node"}, "expected a list such as"),
        ({"requeue_on": "node:0"}, "expected a list such as"),
        ({"requeue_on": "nodes"}, "expected a list such as"),
    ],
)
def test_invalid_options_are_named(cfg: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LimitRule.of(cfg)


def test_notice_names_signal_with_or_without_its_prefix() -> None:
    for text in ("5s:SIGUSR2", "5s:USR2"):
        assert LimitRule.of({"time_limit": "1m", "notice": text}).signal == "USR2"
