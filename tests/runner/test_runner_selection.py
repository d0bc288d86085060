"""Choosing applications, waiting with a limit and pruning, on a scheduler that has no special abilities."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from memory_scheduler import START, MemoryScheduler

from torchx.runner import Runner
from torchx.scheduling.base import Prunes, Waits
from torchx.scheduling.query import AppQuery
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState

memory = MemoryScheduler("s")


@pytest.fixture
def runner() -> Iterator[Runner]:
    memory.jobs.clear()
    with Runner("s", {"memory": lambda session, **_: memory}) as runner:
        for name in ("train", "eval", "train"):
            runner.run(AppDef(name, [Role("r", "", entrypoint="true")]), "memory")
        memory.jobs["eval-1"].end(AppState.FAILED)
        yield runner


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (AppQuery(), ["train-2", "eval-1", "train-0"]),
        (AppQuery(called="train"), ["train-2", "train-0"]),
        (AppQuery(called="eval-1"), ["eval-1"]),
        (AppQuery(name="e*"), ["eval-1"]),
        (AppQuery(states=frozenset(["FAILED"])), ["eval-1"]),
        (AppQuery(since=START + timedelta(hours=1)), ["train-2", "eval-1"]),
    ],
)
def test_which_applications(runner: Runner, query: AppQuery, expected: list[str]) -> None:
    found = list(runner.select("memory", query))
    assert [app.app_id for app in found] == expected
    assert all(app.app_handle == f"memory://s/{app.app_id}" for app in found)


def test_abilities(runner: Runner) -> None:
    assert not runner.has("memory", Prunes)
    assert not runner.has("memory", Waits)


def test_to_wait_with_a_limit(runner: Runner) -> None:
    began = time.monotonic()
    status = runner.wait("memory://s/train-0", timeout=0.1)
    assert status is not None
    assert status.state is AppState.RUNNING
    assert 0.1 <= time.monotonic() - began < 30
    timer = threading.Timer(0.1, memory.jobs["train-0"].end, [AppState.SUCCEEDED])
    timer.start()
    status = runner.wait("memory://s/train-0", timeout=60)
    timer.join()
    assert status is not None
    assert status.state is AppState.SUCCEEDED


def test_without_the_ability_pruning_deletes(runner: Runner) -> None:
    assert [each.app_id for each in runner.prune("memory", ["eval-1"], dryrun=True)] == ["eval-1"]
    assert "eval-1" in memory.jobs
    assert [each.app_id for each in runner.prune("memory", ["eval-1"])] == ["eval-1"]
    assert "eval-1" not in memory.jobs
