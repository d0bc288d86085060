"""Facts of accounting on a job whose id another job has now."""

from __future__ import annotations

from torchx.schedulers.slurm.parse import JobFacts
from torchx.schedulers.slurm.queue import _account_of
from torchx.schedulers.slurm.record import SlurmRecord


def test_facts_of_the_job_that_has_the_id_now_are_of_that_one() -> None:
    record = SlurmRecord(7, "old", "train", "train-old", "torchx", "/jobs/train-old", 1000.0, {})
    queued = JobFacts(
        7, 0, "PENDING", name="train-old", comment="torchx:c0de:/jobs/train-new", submitted=7000.0
    )
    ended = JobFacts(7, 0, "COMPLETED", name="train-old", submitted=1001.0)
    without_comment = JobFacts(7, 0, "PENDING", name="train-old", submitted=7000.0)
    assert not record.is_of(queued)
    assert record.is_of(without_comment)
    assert _account_of(record, [ended, without_comment], [queued]) == (ended,)
    assert _account_of(record, [ended], []) == (ended,)
