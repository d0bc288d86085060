"""The benchmarks of Slurm run on a cluster; how long anything takes is no matter here."""

from __future__ import annotations

import pytest
from project.test_benchmarks import run


@pytest.mark.slurm
@pytest.mark.alone
def test_a_cluster_is_measured_beside_its_own_programs() -> None:
    printed = run("cluster")
    assert printed.count("\n") == 6
    assert all(word in printed for word in ("`sbatch`", "`squeue --json`", "`squeue --jobs`"))


def test_missing_programs_are_named() -> None:
    with pytest.raises(AssertionError, match=r"left out: .*Slurm is not configured.*\.ci/slurm starts one"):
        run("cluster")
