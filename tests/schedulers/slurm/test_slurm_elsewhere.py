"""A Slurm cluster that is used from a system that is no Linux, where its client programs are installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from platforms.elsewhere import torchx_elsewhere

pytestmark = pytest.mark.slurm


def test_a_job_is_run_read_and_deleted(tmp_path: Path) -> None:
    ran, listed, log, deleted = torchx_elsewhere(
        tmp_path, "run -s slurm --wait utils.echo --msg hi", "list -s slurm", "log @last", "delete @last"
    )
    assert ran.code == 0, ran.stderr
    assert ran.stdout.startswith("slurm://torchx/")
    number = ran.stdout.strip().rpartition("/")[2]
    mine = [line for line in listed.stdout.splitlines() if line.startswith(f"{number} ")]
    assert len(mine) == 1, listed.stdout  # other tests have jobs on the same cluster
    assert "SUCCEEDED" in mine[0]
    assert log.stdout == "echo/0 │ hi\n"
    assert deleted.code == 0
