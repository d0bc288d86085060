"""Jobs of other users, and facts of accounting on a job whose id another job has now."""

from __future__ import annotations

import pytest

from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.slurm import status
from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.queue import SlurmJob, outcome_off_queue
from torchx.specs.status import AppState


@pytest.mark.parametrize(("owner", "own"), [("", True), ("mallory", False)])
def test_a_listing_marks_the_jobs_of_the_caller(
    owner: str, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = BatchRecord(7, "b1c2", "train", "train-b1c2", "torchx", "", 1000.0, {})
    job = SlurmJob("7", record, (), Outcome(AppState.PENDING), owner=owner)
    monkeypatch.setattr(status, "list_jobs", lambda all_users: [job])
    assert [(row.app_id, row.is_own) for row in status.list_apps({})] == [("7", own)]


def test_facts_belong_to_the_job_of_the_id_now() -> None:
    record = BatchRecord(7, "old", "train", "train-old", "torchx", "/jobs/train-old", 1000.0, {})
    queued = JobFacts(
        7, 0, "PENDING", name="train-old", comment="torchx:c0de:/jobs/train-new", submitted=7000.0
    )
    ended = JobFacts(7, 0, "COMPLETED", name="train-old", submitted=1001.0)
    without_comment = JobFacts(7, 0, "PENDING", name="train-old", submitted=7000.0)
    assert not record.is_of(queued.name, queued.comment)
    assert record.is_of(without_comment.name, without_comment.comment)
    assert outcome_off_queue(record, [ended, without_comment], [queued]).state is AppState.SUCCEEDED
    assert outcome_off_queue(record, [ended], []).state is AppState.SUCCEEDED
    assert outcome_off_queue(record, [without_comment], []).state is AppState.PENDING
