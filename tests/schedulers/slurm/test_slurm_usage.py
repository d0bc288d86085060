"""Tests of the measurements of the steps of Slurm jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import slurms
from program import torchx
from support import wait_until

from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm import measurement as slurm_measurement
from torchx.schedulers.slurm.measurement import Step, bytes_of, read_steps, seconds_of
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.scheduling.measurement import AppUsage
from torchx.specs.app import AppDef
from torchx.specs.status import AppState, is_terminal

MB = 1 << 20
ACCOUNT = """\
8+0|COMPLETED|20|00:41.000|||
8+0.batch|COMPLETED|20|00:00.057|14376K||1
8+0.extern|COMPLETED|20|00:00.001|0||1
8+0.0|COMPLETED|20|00:40.000|646696K|1|2
8+1.1|RUNNING|7|00:00.000|||3
8+1.2|CANCELLED by 0|x||||
damaged
"""


def test_steps_are_the_replicas_of_a_role() -> None:
    assert list(read_steps(ACCOUNT)) == [
        Step(0, 0, False, 20.0, 40.0, 646696 << 10, 1, 2),
        Step(1, 1, True, 7.0, None, None, 0, 3),
    ]


@pytest.mark.parametrize("text", ["", "x", "1:", "-1", "1-2"])
def test_invalid_durations_are_unknown(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("text", ["", "x", "-1K", "K", "1Z"])
def test_invalid_sizes_are_unknown(text: str) -> None:
    assert bytes_of(text) is None


def has_accounting() -> bool:
    """Returns True if the cluster of the tests has accounting; they run with and without."""
    return subprocess.run(["sacct", "--noheader"], capture_output=True).returncode == 0


@pytest.mark.slurm
def test_job_is_measured_during_and_after_its_run(tmp_path: Path) -> None:
    scheduler = create_scheduler("torchx")
    end = tmp_path / "end"
    script = f"x=$(head -c 44000000 /dev/zero | tr '\\0' x); while [ ! -e {end} ]; do sleep 0.2; done"
    roles = [slurms.role(script, "train"), slurms.role(f"while [ ! -e {end} ]; do sleep 0.2; done", "eval")]
    app_id = scheduler.submit(AppDef("job", roles), {"job_dir": str(tmp_path), "time": "5"})
    try:

        def large() -> AppUsage | None:
            found = scheduler.usage(app_id)
            return found if found is not None and (found.peak_memory or 0) > 40 * MB else None

        if not has_accounting():
            return
        wait_until(lambda: slurms.state(scheduler, app_id) is AppState.RUNNING, "it runs", 400.0)
        running = wait_until(large, "it is measured")
        assert running.largest is not None
        assert running.largest.name == "train/0"
        assert running.largest.running
        assert running.largest.requested.memory == 100 * MB
        end.touch()
        wait_until(lambda: is_terminal(slurms.state(scheduler, app_id)), "it has ended")
        ended = wait_until(
            lambda: (found := large()) and all(not r.running for r in found.replicas) and found,
            "it is accounted",
            60,
        )
        assert ended.largest is not None
        assert ended.largest.name == "train/0"
        assert ended.now is None
    finally:
        scheduler.delete(app_id)
    assert scheduler.usage(app_id) is None


@pytest.mark.slurm
def test_without_accounting_a_job_is_measured_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = create_scheduler("torchx")
    end = tmp_path / "end"
    role = slurms.role(f"while [ ! -e {end} ]; do sleep 0.1; done", num_replicas=2)
    app_id = scheduler.submit(AppDef("job", [role]), {"job_dir": str(tmp_path)})
    monkeypatch.setattr(slurm_measurement, "account", lambda records, *flags: "")
    try:
        found = wait_until(lambda: scheduler.usage(app_id), "it is measured")
        assert [each.running for each in found.replicas] == [True]
        assert (found.peak_memory or 0) > MB
        assert found.mean_cpu is not None
        end.touch()
        wait_until(lambda: is_terminal(slurms.state(scheduler, app_id)), "it has ended")
        assert scheduler.usage(app_id) is None
    finally:
        monkeypatch.undo()
        scheduler.delete(app_id)


def _called(job: object) -> str:
    raise AssertionError("the accounting was queried")


def test_accounting_of_an_unstarted_job_is_not_queried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jobs" / "a-b1"
    folder.mkdir(parents=True)
    record = BatchRecord(7, "b1", "a", "a-b1", "torchx", str(folder), 1.0, {"name": "a", "roles": []})
    monkeypatch.setattr(slurm_measurement, "find_record", lambda app_id: record)
    monkeypatch.setattr(slurm_measurement, "steps_of", _called)
    assert slurm_measurement.usage("7") is None
    (folder / "attempt").write_text("1\n")  # requeued
    with pytest.raises(AssertionError, match="was queried"):
        slurm_measurement.usage("7")


@pytest.mark.slurm
def test_a_status_queries_the_queue_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = create_scheduler("torchx")
    program = tmp_path / "squeue"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexec {shutil.which("squeue")} "$@"\n')
    program.chmod(0o755)
    app = AppDef("job", [slurms.role("sleep 600")])
    app_id = scheduler.submit(app, {"job_dir": str(tmp_path), "time": "5"})
    try:
        wait_until(lambda: slurms.state(scheduler, app_id) is AppState.RUNNING, "it runs")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        shown = torchx("status", f"slurm://torchx/{app_id}")
        assert "running" in shown.stdout.lower()
        assert len((tmp_path / "calls").read_text().splitlines()) == 1
        scheduler.usage(app_id)
        assert len((tmp_path / "calls").read_text().splitlines()) == 1
    finally:
        scheduler.delete(app_id)
