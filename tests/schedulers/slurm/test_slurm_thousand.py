"""A thousand replicas on four nodes, all running at the same time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from slurms import output, role, slurm
from support import wait_until

from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState, Resource

REPLICAS = 1000


@pytest.mark.slurm
@pytest.mark.alone
@pytest.mark.timeout(900)
def test_a_thousand_replicas(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    """Each writes one line, and ends only after all have started."""
    started, gate = tmp_path / "started", tmp_path / "gate"
    started.touch()
    os.mkfifo(gate)
    script = f"echo up $$TORCHX_REPLICA; echo >> {started}; : < {gate}"
    replicas = role(script, num_replicas=REPLICAS, resource=Resource(1, 0, 0))
    app_id = scheduler.submit(AppDef("crowd", [replicas]), {"overcommit": True, "mem": "0", "nodes": "4"})
    with suppress(AssertionError):
        wait_until(lambda: started.stat().st_size == REPLICAS or scheduler.wait(app_id, 0), "all run", 500)
    assert started.stat().st_size == REPLICAS, slurm("sinfo", "-N") + slurm("squeue", "--long")
    gate.open("w").close()
    assert scheduler.wait(app_id, 300)
    described = scheduler.describe(app_id)
    assert described is not None
    (found,) = described.roles_statuses
    assert (described.state, len(found.replicas)) == (AppState.SUCCEEDED, REPLICAS)
    assert {replica.state for replica in found.replicas} == {AppState.SUCCEEDED}
    assert len({replica.hostname for replica in found.replicas}) == 4
    lines = sorted(output(scheduler, app_id).decode().splitlines())
    assert lines == sorted(f"up r/{number}" for number in range(REPLICAS))
