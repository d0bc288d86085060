"""What `torchx doctor` finds of a Slurm cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from program import answer, torchx

from torchx.schedulers.shared.batch.filesystems import finding_on
from torchx.schedulers.slurm.doctor import diagnose, memory, partitions
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.scheduling.findings import Verdict


@pytest.mark.parametrize(
    ("nodes", "verdict", "said"),
    [
        (
            "gpu*|up|3|idle|9\ngpu*|up|1|down*|9\n",
            Verdict.GOOD,
            "gpu* (3 of 4 nodes work)",
        ),
        ("a|up|2|mixed|9\nb|up|1|drained|9\n", Verdict.GOOD, "no default partition, set -cfg partition=…"),
        ("gpu*|inact|3|idle|9\ncpu|up|2|down*|9\n", Verdict.WRONG, "cpu (0 of 2 nodes work)"),
        ("", Verdict.WRONG, "no partition is visible"),
    ],
)
def test_partitions(nodes: str, verdict: Verdict, said: str) -> None:
    found = partitions(nodes)
    assert found.verdict is verdict
    assert said in found.detail
    assert bool(found.hint) is (verdict is Verdict.WRONG)


def test_memory_that_slurm_does_not_know() -> None:
    assert memory("a|up|1|idle|1\n").verdict is Verdict.ABSENT
    assert memory("a|up|1|idle|64000+\na|up|1|mix|1\n").detail == "nodes of up to 64,000 MB"


def test_the_folder_of_jobs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert finding_on(tmp_path / "not" / "yet").verdict is not Verdict.WRONG
    assert finding_on(tmp_path / "file" / "x").verdict is Verdict.WRONG
    assert "job_dir" in finding_on(tmp_path / "file").hint


def test_without_any_program_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = diagnose()
    assert found.verdict is Verdict.ABSENT
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (found,) = diagnose()
    assert found.verdict is Verdict.WRONG
    assert "`squeue`, `scancel`" in found.detail


@pytest.mark.slurm
def test_a_cluster_that_works() -> None:
    reported = {finding.what: finding for finding in create_scheduler("s").diagnose()}
    assert Verdict.WRONG not in [finding.verdict for finding in reported.values()]
    assert "Slurm " in reported["cluster"].detail
    assert "apart (1 of 1 nodes work)" in reported["partitions"].detail
    assert [each["what"] for each in answer("doctor", "slurm", "--json")["slurm"]] == list(reported)


@pytest.mark.slurm
def test_a_controller_that_is_away(tmp_path: Path) -> None:
    away = tmp_path / "slurm.conf"
    text = Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).read_text()
    away.write_text(text.replace("SlurmctldPort=16817", "SlurmctldPort=1"))
    done = torchx("doctor", "slurm", env={"SLURM_CONF": str(away)})
    assert done.returncode == 1
    assert "the Slurm controller does not answer" in done.stdout
    assert "scontrol ping" in done.stdout
