"""Tests of the times of measurements, and of the processes that belong to a replica."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from supervisor.test_sampling import submitted

from torchx.jobs.events import Clock
from torchx.jobs.record import JobRecord
from torchx.machine.processes import Entry, Process
from torchx.supervisor.measurement import sampling
from torchx.supervisor.measurement.sampling import Sampler


def test_a_pass_is_made_early_and_then_rarely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [100.0], [0.0]
    clocks = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: used[0])
    monkeypatch.setattr(sampling, "time", clocks)
    sampler, passes = _sampler(tmp_path), []

    def measure() -> None:
        passes.append(now[0])
        sampler._sampled = True
        used[0] += 0.2

    sampler._sample = measure  # type: ignore[method-assign]
    assert sampler.pause() is None, "nothing runs"
    sampler.started(_running())  # type: ignore[arg-type]
    assert sampler.pause() == sampling.FIRST_AFTER
    for at in (100.5, 101.5, 102.9, 121.4, 121.6):
        now[0] = at
        sampler.due()
    assert passes == [101.5, 121.6], "the pause is so long that passes use a hundredth of a core"
    now[0] = 300.0
    sampler.close()
    sampler.due()
    assert passes == [101.5, 121.6]


def test_starts_delay_the_first_pass_but_not_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now[0]))
    sampler = _sampler(tmp_path)
    sampler.started(_running())  # type: ignore[arg-type]
    now[0] = 100.9
    sampler.started(_running())  # type: ignore[arg-type]
    assert sampler.pause() == pytest.approx(sampling.FIRST_AFTER)
    now[0] = 104.9
    sampler.started(_running())  # type: ignore[arg-type]
    assert sampler.pause() == pytest.approx(0.1)


def _sampler(tmp_path: Path) -> Sampler:
    paths = submitted(tmp_path, "")
    return Sampler(JobRecord.load(paths.record), paths, Clock(), None)  # type: ignore[arg-type]


def _running() -> object:
    class Running:
        ordinal, attempt, process = 0, 1, Process(os.getpid(), 1)

    return Running()


def test_changing_table_has_no_endless_chain(tmp_path: Path) -> None:
    sampler = _sampler(tmp_path)
    sampler.started(_running())  # type: ignore[arg-type]
    me = os.getpid()

    def entry(pid: int, parent: int, session: int = 1) -> Entry:
        return Entry(Process(pid, 1), parent, pid, session, False, 0, 0)

    cycle = [entry(7, 8), entry(8, 9), entry(9, 7), entry(15, 7)]
    others = [entry(10, 11), entry(12, 13), entry(13, 14, me)]
    entries = {each.process.pid: each for each in (*cycle, *others)}
    assert set(sampler._find_owners(entries)) == {12, 13}


def test_a_process_that_is_adopted_keeps_its_replica(tmp_path: Path) -> None:
    sampler, me = _sampler(tmp_path), os.getpid()
    sampler.started(_running())  # type: ignore[arg-type]
    (attempt,) = sampler._attempts.values()
    without_environment = Entry(Process(1 << 23, 1), me, 1, 1, False, 0, 0)
    entries = {1 << 23: without_environment}
    assert sampler._find_owners(entries) == {}
    sampler._owners = {1 << 23: attempt}
    assert sampler._find_owners(entries) == {1 << 23: attempt}
    sampler._attempts.clear()
    assert sampler._find_owners(entries) == {}, "its replica has ended"


def test_without_gpu_of_its_own_no_program_is_started(tmp_path: Path) -> None:
    assert _sampler(tmp_path)._monitor is None
