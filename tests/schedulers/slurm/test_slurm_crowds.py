"""Many jobs on Slurm, with a `squeue` of the test: a listing takes one call, whose text output is read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from slurms import configure_no_controller

from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs import AppDef, AppState, Role
from torchx.specs.serialize import app_to_dict

COUNT = 1000
SQUEUE = """#!/bin/sh
echo "$@" >> {folder}/calls
for argument in "$@"; do
    case $argument in
    --format=*) between=${{argument#--format=%i}}; exec sed "s^SEP^${{between%%%*}}^g" {folder}/lines ;;
    esac
done
exit 3
"""


def test_a_thousand_jobs_are_listed_with_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs"
    jobs.mkdir(mode=0o700, parents=True)
    app = app_to_dict(AppDef("train", [Role("r", "", entrypoint="true")]))
    lines, now = [], int(time.time())
    for number in range(COUNT):
        token = f"b{number:04d}"
        folder = jobs / f"train-{token}"
        folder.mkdir(mode=0o700)
        (folder / "id").write_text(str(number + 1))
        record = BatchRecord(
            number + 1, token, "train", folder.name, "torchx", str(folder), now - number, app
        )
        Records("slurm").add(record)
        state = "RUNNING" if number % 2 else "PENDING"
        job, mark = str(number + 1), f"torchx:{token}:{folder}"
        cells = [job, job, state, str(now - number), str(now - number), "N/A", "", "node1", "None", "x", mark]
        lines.append("SEP".join(cells))
    (tmp_path / "lines").write_text("\n".join(lines) + "\n")
    (tmp_path / "squeue").write_text(SQUEUE.format(folder=tmp_path))
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    configure_no_controller(monkeypatch, tmp_path)
    listed = list(create_scheduler("torchx").list())
    assert [app.app_id for app in listed] == [str(number + 1) for number in range(COUNT)], "newest first"
    assert {app.state for app in listed} == {AppState.PENDING, AppState.RUNNING}
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
