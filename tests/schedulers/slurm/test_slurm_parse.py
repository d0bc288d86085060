"""What squeue and sacct of all releases print is read as the same facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.schedulers.slurm.parse import by_job, read_account, read_queue


def test_plain_text(resources: Path) -> None:
    jobs = by_job(read_queue((resources / "slurm/squeue.txt").read_text()))
    assert (jobs["7"][0].reason, jobs["7"][0].started, jobs["7"][0].ended) == ("Priority", 1795249600, None)
    assert jobs["8"][0].nodes == "gpu[01-02]"
    assert [part.nodes for part in jobs["9"]] == ["gpu03", "cpu01"]
    assert jobs["12_3"][0].comment == "a|b"


def test_tasks_of_an_array() -> None:
    line = "{}|{}|PENDING|1|N/A|N/A|me|||train|torchx:b1:/f/jobs/train-b1"
    facts = read_queue("\n".join([line.format("7_3", 9), line.format("7_[4-6%2]", 7), line.format("8", 8)]))
    assert [(part.key, part.task, part.own_id) for part in facts] == [("7_3", 3, 9), ("8", None, 8)]
    assert list(by_job(facts)) == ["7_3", "8"]


def test_accounting(resources: Path) -> None:
    jobs = by_job(read_account((resources / "slurm/sacct.txt").read_text()))
    assert [part.state for part in jobs["9"]] == ["CANCELLED", "CANCELLED"]
    assert (jobs["9"][0].exit_code, jobs["9"][0].signal) == (0, 15)
    assert jobs["11"][0].state == "OUT_OF_MEMORY"
    assert jobs["12"][0].nodes == ""


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"errors": [{"error": "no"}], "jobs": []}', "[]", '{"jobs": 3}', "slurm_load_jobs error: no"],
)
def test_what_is_no_list_of_jobs(text: str) -> None:
    assert read_queue(text) == []
