"""Numbers of jobs on a real cluster: one that two jobs have had, one script that has two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from slurms import output, role, slurm, state
from support import wait_until

from torchx.errors import UsageError
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState

pytestmark = pytest.mark.slurm


def in_queue(app_id: str) -> str:
    return slurm("squeue", "--noheader", "--states=all", f"--jobs={app_id}", "--format=%T").strip()


@pytest.mark.parametrize("end", ["_cancel_existing", "kill", "delete"])
def test_end_of_job_leaves_a_newer_one(scheduler: SlurmScheduler, tmp_path: Path, end: str) -> None:
    app_id = scheduler.submit(AppDef("new", [role("true")]), {"hold": True})
    (new,) = Records("slurm").all()
    folder = tmp_path / "jobs" / "new-old"
    folder.mkdir(mode=0o700, parents=True)
    older = replace(new, token="old", folder=str(folder), submitted_at=new.submitted_at - 6000)
    Records("slurm").add(older)
    old = f"{app_id}@old"
    assert state(scheduler, old) is AppState.UNKNOWN
    getattr(scheduler, end)(old)
    assert state(scheduler, old) is (AppState.UNKNOWN if end == "delete" else AppState.CANCELLED)
    assert in_queue(app_id) == "PENDING"
    assert state(scheduler, app_id) is AppState.PENDING


def test_end_of_job_leaves_a_foreign_one(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    plain = slurm("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true").strip()
    try:
        app = {"name": "a", "roles": []}
        folder = tmp_path / "jobs" / "a-old"
        folder.mkdir(mode=0o700, parents=True)
        Records("slurm").add(BatchRecord(int(plain), "old", "a", "a-old", "torchx", str(folder), 1.0, app))
        scheduler.cancel(plain)
        assert state(scheduler, plain) is AppState.CANCELLED
        assert in_queue(plain) == "PENDING"
    finally:
        slurm("scancel", plain)


def test_a_cluster_that_only_sbatch_would_hear_of(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_CLUSTERS", "elsewhere")
    with pytest.raises(UsageError, match="SBATCH_CLUSTERS=elsewhere affects only sbatch"):
        scheduler.submit(AppDef("a", [role("true")]), {})
    assert not list(Records("slurm").all())


def test_a_script_that_sbatch_gets_twice_makes_two_jobs(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f'echo "$$SLURM_JOB_ID"; test ! -e {gate} || sleep 600; exit 3'
    info = scheduler.submit_dryrun(AppDef("hand", [role(command)]), {})
    first = slurm("sbatch", "--parsable", text=repr(info)).strip()
    assert scheduler.wait(first, 60)
    gate.touch()
    second = slurm("sbatch", "--parsable", text=repr(info)).strip()
    try:
        wait_until(lambda: output(scheduler, second) == f"{second}\n".encode(), "it runs")
        assert state(scheduler, second) is AppState.RUNNING
        assert (state(scheduler, first), output(scheduler, first)) == (AppState.FAILED, f"{first}\n".encode())
        listed = {app.app_id: app.state for app in scheduler.list()}
        assert (listed[first], listed[second]) == (AppState.FAILED, AppState.RUNNING)
    finally:
        scheduler.cancel(second)


def test_script_of_job_on_record_goes_to_sbatch_again(scheduler: SlurmScheduler) -> None:
    first = scheduler.submit(AppDef("again", [role("echo $$SLURM_JOB_ID")]), {"hold": True})
    (record,) = Records("slurm").all()
    second = slurm("sbatch", "--parsable", str(record.paths.script)).strip()
    slurm("scontrol", "release", second)
    assert scheduler.wait(second, 60)
    assert (state(scheduler, first), state(scheduler, second)) == (AppState.PENDING, AppState.SUCCEEDED)
    assert (output(scheduler, first), output(scheduler, second)) == (b"", f"{second}\n".encode())
    assert {first, second} <= {app.app_id for app in scheduler.list()}
