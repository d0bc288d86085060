"""States of many jobs, in one query."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torchx.schedulers.shared.batch.record import Records, parse_key
from torchx.schedulers.slurm.queue import SlurmJob, jobs_of, query_all_jobs
from torchx.schedulers.slurm.status import describe
from torchx.scheduling.base import DescribeAppResponse


def find_many(app_ids: Iterable[str]) -> dict[str, SlurmJob]:
    """Returns the jobs of this state home with these ids, by their ids, after one query of the queue.

    Raises:
        StateError: Slurm does not respond.
    """
    keys = {parse_key(app_id.partition("@")[0]): app_id for app_id in app_ids}
    records = Records("slurm").of(keys)
    named = [(keys[key], record) for key, record in records.items()]
    return {job.app_id: job for job in jobs_of(named, query_all_jobs(False)())}


def glance_many(app_ids: Collection[str]) -> dict[str, DescribeAppResponse]:
    """Returns the status of jobs, without their roles, by their ids; unknown ones are left out."""
    found = find_many(app_ids)
    return {app_id: describe(job.record, app_id, job.outcome, job.queue) for app_id, job in found.items()}
