"""An upgrade under a job of Slurm: this version sees and ends jobs with a script of the one before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurms import output, slurm, state
from support import wait_until

from torchx.schedulers.slurm.scheduler import SlurmScheduler, create_scheduler
from torchx.specs import AppState

pytestmark = pytest.mark.slurm


@pytest.fixture
def old_job(resources: Path, tmp_path: Path) -> Iterator[tuple[SlurmScheduler, str, Path]]:
    """A job whose script has its functions, its agent and its arguments inside, and the file it waits for."""
    token, gate = f"a1b2{os.getpid()}", tmp_path / "gate"
    folder = Path(os.environ["TORCHX_HOME"]) / "slurm" / "jobs" / f"old-{token}"
    script = (resources / "slurm" / "script-of-one-file.sh").read_text()
    for name, value in {"@TOKEN@": token, "@FOLDER@": str(folder), "@GATE@": str(gate)}.items():
        script = script.replace(name, value)
    app_id = slurm("sbatch", "--parsable", text=script).strip()
    scheduler = create_scheduler("torchx")
    yield scheduler, app_id, gate
    scheduler.delete(app_id)


def test_a_job_with_a_script_of_the_version_before(old_job: tuple[SlurmScheduler, str, Path]) -> None:
    scheduler, app_id, gate = old_job
    wait_until(lambda: output(scheduler, app_id) == b"began\n", "its output is read while it runs")
    assert state(scheduler, app_id) is AppState.RUNNING
    assert (app_id, "old") in [(app.app_id, app.name) for app in scheduler.list()]
    gate.touch()
    assert scheduler.wait(app_id, 60)
    described = scheduler.describe(app_id)
    assert described is not None
    assert described.first_failure is not None
    assert (described.state, described.first_failure.role) == (AppState.FAILED, "w")
    assert described.first_failure.exit_code == 3


def test_a_job_of_the_version_before_is_cancelled(old_job: tuple[SlurmScheduler, str, Path]) -> None:
    scheduler, app_id, _ = old_job
    wait_until(lambda: output(scheduler, app_id) == b"began\n", "it runs")
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    assert state(scheduler, app_id) is AppState.CANCELLED
    # the shell reports the end of its `sleep`, if that gets the signal first
    assert output(scheduler, app_id).removesuffix(b"Terminated\n") == b"began\n"
