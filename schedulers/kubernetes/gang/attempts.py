"""The attempts of a gang: their numbers, the names of their jobs, and the newest ones."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.schedulers.kubernetes.api.objects import Object, count_of, created, label
from torchx.schedulers.kubernetes.names import APP_ID, ATTEMPT, ROLE_INDEX

SPARE = len("-r9999")
"""Additional characters in the names of the jobs of later attempts."""


def attempt_of(job: Object) -> int:
    """Returns the number of the attempt that a job or a pod belongs to, from 1."""
    return count_of(label(job, ATTEMPT)) or 1


def name_of(name: str, attempt: int, following: int) -> str:
    """Returns the name of the job of another attempt.

    Args:
        name: the name of a job.
        attempt: its attempt.
        following: the other attempt, from 2.

    >>> name_of("a-b1-w", 1, 2), name_of("a-b1-w-r2", 2, 3)
    ('a-b1-w-r2', 'a-b1-w-r3')
    """
    if attempt > 1:
        base = name.removesuffix(f"-r{attempt}")
    else:
        base = name
    return f"{base}-r{following}"


def originals(jobs: Iterable[Object]) -> list[Object]:
    """Returns jobs without those that have copied labels.

    The name of a job begins with the id of its application, and for an attempt of a role there is one job.
    """
    jobs = [job for job in jobs if f"{job['metadata']['name']}-".startswith(f"{label(job, APP_ID)}-")]
    oldest: dict[tuple[str, int], Object] = {}
    for job in sorted(jobs, key=created):
        oldest.setdefault((label(job, ROLE_INDEX), attempt_of(job)), job)
    return [job for job in jobs if job is oldest[label(job, ROLE_INDEX), attempt_of(job)]]


def newest_attempts(jobs: Iterable[Object]) -> tuple[list[Object], list[Object]]:
    """Returns the jobs of the newest attempt of each role, and those of earlier attempts.

    Jobs without the label of an attempt are all of the first kind.
    """
    newest: dict[str, int] = {}
    jobs = originals(jobs)
    for job in jobs:
        role = label(job, ROLE_INDEX)
        newest[role] = max(attempt_of(job), newest.get(role, 1))
    mains = [job for job in jobs if attempt_of(job) == newest[label(job, ROLE_INDEX)]]
    earlier = [job for job in jobs if attempt_of(job) < newest[label(job, ROLE_INDEX)]]
    return mains, earlier
