"""What the tests of jobs on a cluster get: a scheduler whose jobs are gone after the test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.slurm.scheduler import SlurmScheduler, create_scheduler


@pytest.fixture
def scheduler() -> Iterator[SlurmScheduler]:
    made = create_scheduler("torchx")
    home = os.environ["TORCHX_HOME"]
    yield made
    os.environ["TORCHX_HOME"] = home  # a test may have gone elsewhere; others use the same cluster
    for record in list(Records("slurm").all()):
        made.delete(str(record.job_id))
