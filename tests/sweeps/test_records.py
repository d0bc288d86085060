"""Sweeps as their files record them: of many runs, only those are read that a command shows."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from datetime import datetime, timedelta, timezone

import pytest

from torchx.errors import StateError
from torchx.jobs.events import Clock
from torchx.machine import processes
from torchx.scheduling.measurement import AppUsage
from torchx.scheduling.responses import DescribeAppResponse
from torchx.specs.status import AppState
from torchx.sweeps import native, view
from torchx.sweeps.native import NativeRuns
from torchx.sweeps.paths import SweepPaths, paths_of
from torchx.sweeps.plan import Header, header_line, run_line
from torchx.sweeps.records import Runs
from torchx.sweeps.scheduler import SweepScheduler
from torchx.sweeps.view import Sweep

APP = {"name": "a", "roles": [], "secrets": {}}


def record(count: int, entries: list[dict[str, object]]) -> SweepPaths:
    """Records a sweep without a conductor."""
    paths = paths_of("a-1")
    paths.folder.mkdir(parents=True, mode=0o700)
    header = Header("a-1", "a", "torchx", "local_cwd", {}, "c", 1.0, "i", 1, APP)
    lines = [run_line(number, {"x": str(number)}, []) for number in range(1, count + 1)]
    paths.plan.write_bytes(header_line(header) + b"".join(lines))
    paths.journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return paths


def begin(number: int, at: float, app_id: str = "r") -> dict[str, object]:
    return {"e": "begin", "n": number, "id": app_id, "t": at}


def test_the_last_start_and_end_of_a_run_count() -> None:
    end = {"e": "end", "n": 1, "s": "FAILED", "t": 3.0, "b": 2.0, "c": 7, "u": [5, 0.5, None]}
    entries = [begin(1, 1.0), end, begin(2, 2.0), {**end, "n": 2, "c": "x"}, {"e": "again", "runs": [1]}]
    found = view.load(record(4, [*entries, begin(1, 4.0, "r.2")]))
    one, two, three, _ = found.runs
    assert (one.state, one.app_id, one.started, one.ended, one.code, one.memory) == (
        "RUNNING", "r.2", 4.0, None, None, None,
    )  # fmt: skip
    assert (two.state, two.parameters, two.code) == ("FAILED", {"x": "2"}, None)
    assert (three.state, three.app_id) == ("PENDING", "")
    assert [run.number for run in found.in_state("PENDING")] == [3, 4]
    assert found.failed == two


@pytest.mark.parametrize("step", [-3600, 3600])
def test_duration_of_a_sweep_follows_no_clock(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    true, up, boot = time.time, processes.uptime(), processes.boot_id()
    at = true()
    noted: dict[str, object] = {"e": "conductor", "pid": 1, "start": 1, "booted": [boot, at - up]}
    paths = record(2, [noted, begin(1, at)])
    monkeypatch.setattr(time, "time", lambda: true() + step)
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    described = SweepScheduler("torchx", lambda name: pytest.fail(name)).glance("a-1")
    assert described is not None and described.started_at
    run = view.load(paths).runs[0]
    assert run.started is not None
    for started in (run.started, described.started_at.timestamp()):
        assert -1 < time.time() - started < 600
    clock = Clock(step=view.load(paths).progress.clock_step)
    assert abs(clock.now() - at) < 600, "the next conductor continues the clock of this one"


def test_a_sweep_runs_while_its_next_run_is_submitted() -> None:
    waiting: dict[str, object] = {**begin(2, 5.0), "waits": 1}
    end = {"e": "end", "n": 1, "s": "SUCCEEDED", "t": 4.0, "b": 2.0}
    paths = record(3, [begin(1, 1.0), end, waiting])
    found = view.load(paths)
    assert found.state is AppState.RUNNING


def test_a_summary_reads_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [e for n in (1, 2) for e in (begin(n, 1.0), {"e": "end", "n": n, "s": "SUCCEEDED", "t": 2.0})]
    record(2, [*entries, {"e": "done", "t": 3.0}])
    sweeps = SweepScheduler("torchx", lambda name: pytest.fail(name))
    whole = sweeps.glance("a-1")
    assert whole is not None
    assert [role.role for role in whole.roles_statuses] == ["1", "2"]
    monkeypatch.delattr(Runs, "_read")
    summary = sweeps.summary("a-1")
    assert summary is not None
    assert (summary.state, summary.msg, summary.ended_at) == (
        whole.state,
        "2 runs: 2 succeeded",
        whole.ended_at,
    )


def test_a_damaged_line_concerns_its_run_only() -> None:
    paths = record(2, [])
    with paths.plan.open("ab") as file:
        file.write(b'{"n":4,"p":[]}\n{"n":5,"p":{"x\n{"n":2,"p":{"x":"later"},"d":[]}\n{"n":6,"p":')
    runs = view.load(paths).runs
    assert [run.number for run in runs[:2]] == [1, 2]
    assert (len(runs), runs[1].parameters) == (4, {"x": "later"})
    for at in (2, 3):
        with pytest.raises(StateError, match="a line is not a run"):
            runs[at]


class Cluster:
    """A cluster whose clock differs; its one run starts at once and takes five minutes."""

    def __init__(self, ahead: float) -> None:
        self.state, self._now = AppState.RUNNING, datetime.now(timezone.utc) + timedelta(seconds=ahead)

    def glance_many(self, app_ids: Collection[str]) -> dict[str, DescribeAppResponse]:
        ended = self._now + timedelta(minutes=5) if self.state is AppState.SUCCEEDED else None
        return {
            app_id: DescribeAppResponse(app_id, self.state, started_at=self._now, ended_at=ended)
            for app_id in app_ids
        }

    def usage_many(self, app_ids: Collection[str]) -> dict[str, AppUsage]:
        return {}


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_duration_of_native_sweep_needs_no_clock_of_cluster(
    ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = time.time
    sent = {"e": "send", "key": "k", "runs": [1], "t": true()}
    paths, cluster = record(1, [sent, {**sent, "e": "queue", "ids": [[1, "7_1"]]}]), Cluster(ahead)

    def observe() -> Sweep:
        NativeRuns(paths, lambda _: cluster).observe()  # type: ignore[arg-type,return-value]
        return view.load(paths)

    monkeypatch.setattr(native, "SubmitsMany", Cluster)
    started = observe().progress.started
    assert started is not None
    assert abs(true() - started) < 60, "the time for which it has run"
    cluster.state = AppState.SUCCEEDED
    monkeypatch.setattr(time, "time", lambda: true() + 300)
    ended = observe()
    assert ended.progress.started is not None
    assert ended.progress.done is not None
    assert abs(ended.progress.done - ended.progress.started - 300) < 60
    run = ended.runs[0]
    assert run.started is not None
    assert run.ended is not None
    assert run.ended - run.started == 300
