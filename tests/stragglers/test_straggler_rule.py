"""The rule for stragglers: no false alarm in simulated runs with noise, and a slow rank is found in time."""

from __future__ import annotations

import time

import pytest
from stragglers.runs import HEALTHY, STEPS, Run, noisy

from torchx.stragglers.rule import WINDOW, Comparison
from torchx.stragglers.watch import MOST_REPORTS, Watch


@pytest.mark.parametrize("name", HEALTHY)
def test_noise_is_no_straggler(name: str) -> None:
    """A hundred runs of all kinds together; the strongest noise doubles a step in one of 20 cases."""
    runs = [HEALTHY[name], *noisy(HEALTHY[name])]
    for number, run in enumerate(runs):
        for seed in range(2):
            assert run.reports(100 * number + seed, 1000) == [], (run, seed)


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1, 0.2])
def test_a_rank_slower_by_a_fifth_is_found(waits: bool, noise: float) -> None:
    """Within 20 times the number of steps, after it became slow in the middle of the run."""
    for seed in range(3):
        found = Run(waits, noise, slow=3, begin=300).reports(seed, 300 + 2 * WINDOW * STEPS)
        assert {rank for rank, _ in found} == {3}
        assert 300 < found[0][1] <= 300 + 2 * WINDOW * STEPS


@pytest.mark.parametrize("waits", [True, False])
def test_a_rank_is_reported_once_until_it_recovers(waits: bool) -> None:
    run = Run(waits, slow=5, end=600)
    assert [rank for rank, _ in run.reports(1, 1500)] == [5]
    first, second = Run(waits, slow=5, end=600, again=1500).reports(1, 2200)
    assert (first[0], second[0]) == (5, 5)
    assert first[1] < 600
    assert second[1] > 1500


def test_the_error_of_clocks_is_no_lag() -> None:
    """The rank is late by 0.1 s, and clocks of hosts may differ by 0.6 s."""
    assert Run(slow=3, skew=0.3).reports(1, 1500) == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_few_ranks_suffice(ranks: int) -> None:
    assert {rank for rank, _ in Run(slow=1, share=0.3).reports(2, 1000, ranks)} == {1}
    assert {rank for rank, _ in Run(waits=False, slow=1, share=0.3).reports(2, 1000, ranks)} == {1}


def test_steps_that_begin_again_are_no_lag() -> None:
    """Ranks that count the steps of each epoch begin again at different times."""
    comparison = Comparison(STEPS)
    found: list[object] = []
    for step in range(3000):
        rows = {}
        for rank in range(4):
            done = step - 20 * (rank == 2)  # the last one to begin again
            last = [(n * 0.5, n % 1000) for n in range(max(done - 15, 0), done + 1)]
            rows[rank, 0] = [beat for beat in last if beat[1] <= done % 1000]
        rows = {key: last for key, last in rows.items() if last}
        found += comparison.update(rows)
    assert found == []


@pytest.mark.timeout(60)
def test_steps_with_large_gaps_take_no_time() -> None:
    """Some programs count samples, and a job may count to the largest number."""
    comparison = Comparison(STEPS)
    for step in (0, 1000, 2000, 10**18):
        comparison.update({(0, rank): [(0.0, 0), (1.0 + step, step)] for rank in range(2)})
    assert comparison.median == 10**18
    assert not comparison.waits


def test_the_watch_names_ranks_and_keeps_the_last_reports() -> None:
    watch = Watch([("trainer", 0), ("trainer", 1), ("eval", 0)], STEPS)
    for step in range(0, 4000, 10):
        beats = {0: {0: _steps(step, 1.0), 1: _steps(step, 1.0), 2: _steps(step, 1.5)}}
        found = watch.update(beats, float(step))
        if found:
            break
    ((ordinal, text),) = found
    assert ordinal == 0
    assert text.startswith("trainer/0 local rank 2: 20 steps behind the median (")
    (role,) = watch.data()["roles"]  # type: ignore[misc]
    assert (role["role"], role["ranks"], role["waits"]) == ("trainer", 3, False)
    assert role["slowest"]["local_rank"] == 2
    assert role["stragglers"] == ["trainer/0 local rank 2"]
    watch.forget(0)
    assert watch.data()["roles"] == []
    reports = [{"at": 1.0, "replica": 0, "message": str(n)} for n in range(2 * MOST_REPORTS)]
    again = Watch([("trainer", 0)], STEPS, reports=reports)
    again.update({}, 1.0)
    assert again.data()["reports"] == reports[-MOST_REPORTS:]


def _steps(at: int, pace: float) -> list[tuple[float, int]]:
    """Returns the last steps of a rank at a time."""
    done = int(at / pace)
    return [(n * pace, n) for n in range(max(done - 15, 0), done + 1)]


def test_a_thousand_replicas_are_cheap() -> None:
    """A check of all takes a fraction of a second, however many steps were made."""
    watch = Watch([("trainer", n) for n in range(1000)], STEPS)
    longest = 0.0
    for step in range(20, 200, 16):
        last = [(n * 0.1, n) for n in range(step - 15, step + 1)]
        began = time.process_time()
        watch.update({ordinal: {0: last} for ordinal in range(1000)}, 1.0)
        longest = max(longest, time.process_time() - began)
    assert longest < 1.0
