"""What squeue and sacct of all releases print is read as the same facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.schedulers.slurm.parse import by_job, read_account, read_json, read_queue
from torchx.schedulers.slurm.record import mark_of

SHAPES = ("20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "25.05")


@pytest.mark.parametrize("release", SHAPES)
def test_json_of_each_release(resources: Path, release: str) -> None:
    facts = {
        each.job_id: each for each in read_json((resources / f"slurm/squeue-{release}.json").read_text())
    }
    jobs = by_job(read_json((resources / f"slurm/squeue-{release}.json").read_text()))
    recorded = release == "22.05"
    waits, runs = (8, 7) if recorded else (7, 8)
    assert jobs[waits][0].state == "PENDING"
    assert jobs[waits][0].reason == ("BeginTime" if recorded else "Priority")
    assert (jobs[waits][0].started or 0) > (jobs[waits][0].submitted or 0), "when it may start"
    assert jobs[runs][0].state == "RUNNING"
    assert [(part.part, part.job_id) for part in jobs[9]] == [(0, 9), (1, 9)], "the parts of one job"
    assert 10 not in jobs
    assert (facts[11].state, facts[11].exit_code, facts[11].signal) == ("FAILED", 3, None)
    assert all(mark_of(each.comment) for each in facts.values())


def test_plain_text(resources: Path) -> None:
    jobs = by_job(read_queue((resources / "slurm/squeue.txt").read_text()))
    assert (jobs[7][0].reason, jobs[7][0].started, jobs[7][0].ended) == ("Priority", 1795249600, None)
    assert jobs[8][0].nodes == "gpu[01-02]"
    assert [part.nodes for part in jobs[9]] == ["gpu03", "cpu01"]
    assert jobs[12][0].comment == "a|b"


def test_accounting(resources: Path) -> None:
    jobs = by_job(read_account((resources / "slurm/sacct.txt").read_text()))
    assert [part.state for part in jobs[9]] == ["CANCELLED", "CANCELLED"]
    assert (jobs[9][0].exit_code, jobs[9][0].signal) == (0, 15)
    assert jobs[11][0].state == "OUT_OF_MEMORY"
    assert jobs[12][0].nodes == ""


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"errors": [{"error": "no"}], "jobs": []}', "[]", '{"jobs": 3}', "slurm_load_jobs error: no"],
)
def test_what_is_no_list_of_jobs(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_json(text)
    assert read_queue(text) == []
