"""Tests of the measurements of containers: recorded by a supervisor, or from the engine's statistics."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from containers import Jobs, ended, scheduler, sh, supervisor_of, until_over
from support import wait_until

from torchx.jobs.measurement import read_samples
from torchx.machine import locks
from torchx.runner import get_runner
from torchx.schedulers.docker import supervisor_launch
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.address import parse_address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.measurement import sampling
from torchx.schedulers.docker.measurement.query import sample_of
from torchx.schedulers.docker.measurement.sampling import Sampler
from torchx.schedulers.docker.measurement.statistics import measure, totals_of
from torchx.schedulers.docker.replay import Progress
from torchx.schedulers.docker.rules.job import Job, RoleFacts
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.schedulers.shared.clock import EngineClock
from torchx.scheduling.measurement import AppUsage, Requested
from torchx.specs.resources import Resource
from torchx.specs.status import AppState
from torchx.supervisor.policy import Gang, RoleRules

MB = 1 << 20


SCRIPT = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); while [ ! -e /tmp/end ]; do sleep 0.05; done"


@pytest.mark.docker
@pytest.mark.parametrize("replicas", [1, 2])  # without a supervisor for its rules, and with one
def test_measurements_are_kept_after_the_end(jobs: Jobs, replicas: int) -> None:
    app_id = jobs.submit(sh(SCRIPT, replicas, resource=Resource(1, 0, 512)), grace_period=0.1)

    def look() -> AppUsage | None:
        found = scheduler().usage(app_id)
        large = found is not None and len(found.replicas) == replicas and (found.peak_memory or 0) > 15 * MB
        return found if large and not found.current else None

    running = wait_until(look, "all are measured", timeout=60)
    assert all(replica.running and replica.samples for replica in running.replicas)
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    found = scheduler().usage(app_id)
    assert found is not None
    assert (found.source, found.current) == ("control groups", ())
    assert (found.peak_memory or 0) > 15 * MB
    assert [replica.name for replica in found.replicas] == [f"w/{n}" for n in range(replicas)]
    for replica in found.replicas:
        assert not replica.running
        assert (replica.total.cpu or 0) > 0
        assert replica.total.gpu is None
        assert replica.requested == Requested(1, 512 * MB, None)
    with get_runner() as runner:
        kinds = [event.kind for event in runner.events(f"local_docker://torchx/{app_id}")]
    assert kinds[-2:] == ["measured", "ended"]
    path = supervised_in(app_id).usage
    assert path.stat().st_mode & 0o777 == 0o600
    until_over(app_id)
    scheduler().delete(app_id)
    assert not path.exists()


@pytest.mark.docker
def test_without_a_file_the_engine_is_queried(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = jobs.submit(sh(SCRIPT, 2, resource=Resource(1, 0, 512)))
    monkeypatch.setattr("torchx.schedulers.docker.measurement.query.own_folder", lambda app_id: None)

    def look() -> AppUsage | None:
        found = scheduler().usage(app_id)
        return found if found is not None and len(found.replicas) == 2 else None

    found = wait_until(look, "both are measured")
    assert found.current == ("memory",)
    assert [replica.name for replica in found.replicas] == ["w/0", "w/1"]
    assert all(replica.running and replica.requested.cpu == 1 for replica in found.replicas)
    scheduler().kill(app_id)
    wait_until(lambda: scheduler().usage(app_id) is None, "ended containers have no statistics")


@pytest.mark.docker
def test_a_supervisor_that_only_measures_delays_nothing(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_launch, "MEASURED_AFTER", 600.0)  # it would be killed if not ready
    app_id = jobs.submit(sh("true"))
    assert ended(app_id).state is AppState.SUCCEEDED
    assert locks.is_held(supervised_in(app_id).lock), "it would have measured"
    leader = supervisor_of(app_id)
    assert leader is not None
    os.kill(leader, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{leader}").exists(), "it is reaped")


def _progress(*containers: Container) -> Progress:
    job = Job("app", (RoleFacts("w", len(containers)),), {}, {})
    return Progress(job, [[one] for one in containers], Gang([RoleRules("w", range(len(containers)))]))


def _container(number: int, status: str = "running", **fields: Any) -> Container:
    return Container(
        f"id{number}", f"w-{number}", "", "app", "w", number, status=status, started=100.0, **fields
    )


class _Statistics:
    """An engine on another machine, whose containers have used so much."""

    address = SimpleNamespace(path="")
    lacks_control_groups = False
    clock = EngineClock()

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def call(self, *request: object, **options: object) -> Any:
        return self.answer


def _sampler(path: Path, engine: object, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Sampler:
    clocks = SimpleNamespace(monotonic=lambda: clock[0], thread_time=lambda: 0.0)
    monkeypatch.setattr(sampling, "time", clocks)
    monkeypatch.setattr(sampling, "Clock", lambda: SimpleNamespace(now=lambda: clock[0]))
    return Sampler(engine, path)  # type: ignore[arg-type]


def test_control_groups_elsewhere_are_measured_by_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, engine, path = [100.2], _Statistics(STATISTICS), tmp_path / "usage" / "app"
    sampler = _sampler(path, engine, clock, monkeypatch)
    assert sampler.pause() is None, "nothing runs"
    sampler.follow(_progress(_container(0), _container(1, "exited"), _container(2, attempt=3)))
    assert sampler.pause() == pytest.approx(0.8)
    sampler.due()
    assert not path.exists(), "not yet"
    clock[0] = 110.0
    sampler.due()
    assert sampler.pause() == sampling.INTERVAL
    engine.answer = {**STATISTICS, "memory_stats": {"usage": 10 * MB}}
    clock[0] = 120.0
    sampler.due()
    samples = read_samples(path, 3)
    assert sorted(samples) == [(0, 1), (2, 3)]
    first, second = samples[0, 1]
    assert (first.span, first.cpu, first.memory, first.write) == (10.0, 0.5, 70 * MB, 2.0)
    assert (second.span, second.cpu, second.memory) == (10.0, 0.0, 10 * MB)
    sampler.follow(_progress(_container(0, "exited"), _container(1, "exited"), _container(2, "exited")))
    assert sampler.pause() is None
    sampler.close()


def test_many_statistics_are_read_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [200.0]
    sampler = _sampler(tmp_path / "usage", _Statistics({}), clock, monkeypatch)
    sampler.follow(_progress(*(_container(n) for n in range(100))))
    sampler.due()
    assert sampler.pause() == pytest.approx(100 * sampling.ENGINE_COST / sampling.SHARE)


def test_a_defect_ends_only_the_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = [200.0]
    sampler = _sampler(tmp_path / "usage", _Statistics(STATISTICS), clock, monkeypatch)
    monkeypatch.setattr(sampling, "cgroup_of", lambda pid, name: 1 / 0)
    sampler.follow(_progress(_container(0)))
    sampler.due()
    assert sampler.pause() is None
    assert "ZeroDivisionError" in capfd.readouterr().err


STATISTICS: dict[str, Any] = {
    "memory_stats": {"usage": 100 * MB, "stats": {"inactive_file": 30 * MB}},
    "cpu_stats": {"cpu_usage": {"total_usage": 5_000_000_000}},
    "blkio_stats": {
        "io_service_bytes_recursive": [
            {"op": "read", "value": 100}, {"op": "Read", "value": 50}, {"op": "write", "value": 20}, 7,
        ]
    },
}  # fmt: skip


def test_rates_are_means_since_the_start() -> None:
    totals = totals_of(STATISTICS)
    assert totals is not None
    found = sample_of(totals, 100.0, 110.0)
    assert (found.span, found.cpu, found.memory, found.read, found.write) == (10.0, 0.5, 70 * MB, 15.0, 2.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: {},
        lambda data: "text",
        lambda data: {**data, "memory_stats": {}},
        lambda data: {**data, "memory_stats": {"usage": "7"}},
        lambda data: {**data, "memory_stats": None},
    ],
)
def test_a_container_that_has_ended_has_no_sample(change: Callable[[Any], Any]) -> None:
    assert totals_of(change(STATISTICS)) is None


def test_unknown_values_are_none() -> None:
    totals = totals_of({**STATISTICS, "cpu_stats": {}, "blkio_stats": {"io_service_bytes_recursive": None}})
    assert totals is not None
    found = sample_of(totals, 1.0, 2.0)
    assert found.cpu is found.read is found.write is None


@pytest.mark.parametrize(
    ("info", "is_known"),
    [
        ({"CgroupDriver": "systemd", "CgroupVersion": "2", "SecurityOptions": ["name=rootless"]}, True),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}, True),
        ({"CgroupDriver": "none", "CgroupVersion": "2"}, False),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1", "SecurityOptions": ["name=rootless"]}, False),
    ],
)
def test_an_engine_without_control_groups_knows_nothing(info: dict[str, Any], is_known: bool) -> None:
    class Answering(Engine):
        def call(self, method: str, path: str, *args: Any, **named: Any) -> Any:
            return info if path == "/info" else STATISTICS

    found = measure(Answering(parse_address("unix:///no-engine")), _container(0))
    assert (found is not None) is is_known


def test_numbers_of_whole_machine_are_not_those_of_container() -> None:
    started = replace(_container(0), started=time.time() - 10.0)
    used = {"online_cpus": 2, "cpu_usage": {"total_usage": 500_000_000_000}}
    engine: Any = _Statistics({**STATISTICS, "cpu_stats": used})
    assert measure(engine, started) is None
    engine.answer = {**STATISTICS, "cpu_stats": {**used, "cpu_usage": {"total_usage": 20_000_000_000}}}
    assert measure(engine, started) is not None
