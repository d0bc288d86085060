"""The order of waiting jobs, as a model: random submissions, ends and decisions."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from torchx.leases import machine
from torchx.queue.order import MARGIN, Quota, Verdict, Waiter, Wanted, decide
from torchx.queue.quotas import of_user, parse
from torchx.runner import queue

GPUS = frozenset(f"gpu-{n}" for n in range(8))


def waiter(
    app_id: str, gpus: int = 1, at: float = 0.0, names: frozenset[str] = GPUS, **facts: object
) -> Waiter:
    return Waiter(0, app_id, at, (Wanted(names, gpus),), **facts)  # type: ignore[arg-type]


def started(verdicts: list[Verdict]) -> list[str]:
    return [verdict.waiter.app_id for verdict in verdicts if verdict.starts]


def test_reserved_memory_is_shown_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = Wanted(frozenset(), 0)
    waits = Waiter(os.geteuid(), "a", 0.0, (nothing, nothing, Wanted(frozenset({"memory-0", "memory-1"}), 2)))
    monkeypatch.setattr("torchx.queue.reasons.verdicts", lambda: {"a": Verdict(waits, (), "waiting")})
    assert [row.memory for row in queue.waiting_rows()] == [2 * machine.memory_unit()]


def test_job_that_does_not_fit_delays_those_behind_it() -> None:
    free = {"gpu-5", "gpu-6", "gpu-7"}
    verdicts = decide([waiter("big", 4, 1.0), waiter("small", 2, 2.0)], free, {}, 0.0)
    assert started(verdicts) == []
    assert [verdict.reason for verdict in verdicts] == [
        "waiting for 4 GPUs: 3 of 8 are free; first in the queue",
        "waiting for 2 GPUs: 3 of 8 are free; second in the queue",
    ]
    # it is held, or of lower priority: the other one starts
    assert started(decide([waiter("big", 4, 1.0, held=True), waiter("small", 2, 2.0)], free, {}, 0.0)) == [
        "small"
    ]
    behind = [waiter("big", 4, 1.0), waiter("small", 2, 2.0, priority=1)]
    assert started(decide(behind, free, {}, 0.0)) == ["small"]


def test_a_job_with_other_gpus_is_not_held_up() -> None:
    one, other = frozenset({"gpu-0", "gpu-1"}), frozenset({"gpu-2"})
    waiting = [waiter("a", 2, 1.0, one), waiter("b", 1, 2.0, other), waiter("c", 1, 3.0, one)]
    assert started(decide(waiting, {"gpu-1", "gpu-2"}, {}, 0.0)) == ["b"]


def test_only_a_job_that_ends_in_time_starts_early() -> None:
    free, ends = {"gpu-7"}, {f"gpu-{n}": 1000.0 + n for n in range(7)}
    # 4 GPUs are free when the third of the others has ended, at 1002
    for limit, goes in ((1002.0 - MARGIN, True), (1002.5 - MARGIN, False), (None, False)):
        waiting = [waiter("big", 4, 1.0), waiter("short", 1, 2.0, limit=limit)]
        assert (started(decide(waiting, free, ends, 0.0)) == ["short"]) is goes
    unknown = {name: end for name, end in ends.items() if name != "gpu-3"}
    assert (
        started(decide([waiter("big", 4, 1.0), waiter("short", 1, 2.0, limit=1.0)], free, unknown, 0.0)) == []
    )


def test_limits_of_user_hold_up_only_that_user() -> None:
    limits = parse("[*]\nmax_gpus = 3\n[nobody]\nmax_jobs = 1\nmax_gpus = x\n")
    assert of_user(limits, 0) == Quota()
    assert of_user(limits, 65534) == Quota(None, 1)
    assert of_user(limits, 4_000_000) == Quota(3)
    mine = [waiter("a", 2, 1.0)._replace(uid=7), waiter("b", 2, 2.0)._replace(uid=7), waiter("c", 2, 3.0)]
    verdicts = decide(mine, GPUS, {}, 0.0, {7: Quota(3)}, {7: Quota(1, 1)})
    assert started(verdicts) == ["a", "c"]
    assert verdicts[1].reason == "the limit of this user is 3 GPUs, 3 in use"
    assert started(decide(mine, GPUS, {}, 0.0, {7: Quota(None, 2)}, {7: Quota(1, 1)})) == ["a", "c"]


@dataclass
class Running:
    names: tuple[str, ...]
    end: float | None


@dataclass
class Model:
    now: float = 0.0
    waiting: dict[str, Waiter] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    latest_start: dict[str, float] = field(default_factory=dict)
    """The time at which the first job of the queue was to start, when it was first in the queue."""


class Queue(RuleBasedStateMachine):
    """Jobs of three users on eight GPUs; time passes by steps."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.count = 0

    @property
    def free(self) -> set[str]:
        return set(GPUS) - {name for job in self.model.running.values() for name in job.names}

    @rule(
        uid=st.integers(0, 2),
        gpus=st.integers(1, 8),
        priority=st.sampled_from([0, 0, 0, 1]),
        limit=st.none() | st.floats(1, 200),
    )
    def submit(self, uid: int, gpus: int, priority: int, limit: float | None) -> None:
        self.count += 1
        app_id = f"job-{self.count}"
        self.model.waiting[app_id] = Waiter(
            uid, app_id, self.model.now + self.count / 1e6, (Wanted(GPUS, gpus),), priority, limit
        )

    @rule(step=st.floats(0.1, 100))
    def time_passes(self, step: float) -> None:
        self.model.now += step
        for app_id, job in list(self.model.running.items()):
            if job.end is not None and job.end <= self.model.now:
                del self.model.running[app_id]

    @rule(data=st.data())
    def a_job_ends(self, data: st.DataObject) -> None:
        if self.model.running:
            del self.model.running[data.draw(st.sampled_from(sorted(self.model.running)))]

    @rule()
    def start(self) -> None:
        ends = {n: job.end for job in self.model.running.values() if job.end is not None for n in job.names}
        free = self.free
        verdicts = decide(self.model.waiting.values(), free, ends, self.model.now)
        assert [v.waiter.app_id for v in verdicts] == sorted(
            self.model.waiting, key=lambda app_id: self.model.waiting[app_id].place
        )
        taken: set[str] = set()
        blocked = None
        for verdict in verdicts:
            mine = verdict.waiter
            if verdict.starts:
                assert len(verdict.names) == mine.gpus, "all or nothing"
                assert taken.isdisjoint(verdict.names), "one holder"
                assert free.issuperset(verdict.names)
                if blocked is not None:
                    assert mine.limit is not None, "only jobs with a limit start ahead"
                taken.update(verdict.names)
                end = None if mine.limit is None else self.model.now + mine.limit
                self.model.running[mine.app_id] = Running(verdict.names, end)
                del self.model.waiting[mine.app_id]
            elif blocked is None:
                blocked = mine
                assert mine.gpus > len(free - taken), "the first one that waits does not fit"

    @invariant()
    def each_gpu_has_one_job(self) -> None:
        names = [name for job in self.model.running.values() for name in job.names]
        assert len(names) == len(set(names))


Queue.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = Queue.TestCase
