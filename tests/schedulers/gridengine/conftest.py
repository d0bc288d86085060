"""What the tests of jobs on a cluster get: a scheduler whose jobs are gone after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchx.schedulers.gridengine.scheduler import GridEngineScheduler, create_scheduler
from torchx.schedulers.shared.batch.record import Records


@pytest.fixture
def scheduler() -> Iterator[GridEngineScheduler]:
    created = create_scheduler("torchx")
    yield created
    for record in list(Records("gridengine").all()):
        created.delete(record.full_id)
