"""Wait for the end of a Slurm job."""

from __future__ import annotations

from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.batch.wait import Watch
from torchx.schedulers.slurm.queue import ANSWERS, find


def watch(record: BatchRecord) -> Watch:
    """Returns a watch for the end of a job."""
    return Watch(record, ANSWERS, find)
