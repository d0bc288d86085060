"""The probes that the label of an application does not show: they are in its private record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchx.masking import MASK
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.record import load_data
from torchx.schedulers.docker.rules.job import Job, job_from


def with_probes(job: Job) -> Job:
    """Returns a job with its complete probes, if this user has submitted it from this machine."""
    if not any(role.service is not None and MASK in role.service.ready for role in job.roles):
        return job
    record = load_data(job.app_id)
    if record is None or record.get("submitted_at") != job.data.get("submitted_at"):
        return job
    own = {role.name: role.service for role in job_from(job.app_id, record).roles}
    return replace(
        job, roles=tuple(role._replace(service=own.get(role.name) or role.service) for role in job.roles)
    )


def shown(job: Job, containers: Sequence[Container]) -> Job:
    """Returns a job with the probes that messages about its containers name."""
    if any(c.unready_answer is not None for c in containers):
        return with_probes(job)
    return job
