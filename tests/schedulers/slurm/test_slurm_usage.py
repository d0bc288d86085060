"""Tests of the measurements of the replicas of Slurm jobs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import slurms
from program import torchx
from support import wait_until

from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.scheduling.measurement import AppUsage
from torchx.specs.app import AppDef
from torchx.specs.status import AppState, is_terminal

MB = 1 << 20


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

        wait_until(lambda: slurms.state(scheduler, app_id) is AppState.RUNNING, "it runs", 400.0)
        running = wait_until(large, "it is measured")
        assert running.largest is not None
        assert running.largest.name == "train/0"
        assert running.largest.running
        assert running.now is not None
        assert (running.now.memory or 0) > 40 * MB
        assert [each.name for each in running.replicas] == ["train/0", "eval/0"]
        assert running.largest.requested.memory == 100 * MB
        end.touch()
        wait_until(lambda: is_terminal(slurms.state(scheduler, app_id)), "it has ended")
        ended = large()
        assert ended is not None
        assert ended.largest is not None
        assert ended.largest.name == "train/0"
        assert ended.now is None
    finally:
        scheduler.delete(app_id)
    assert scheduler.usage(app_id) is None


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
