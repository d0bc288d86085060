"""The attempts of a gang: their numbers, the names of their jobs, and the newest ones."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.schedulers.kubernetes.api.objects import Object, count_of, label
from torchx.schedulers.kubernetes.manifests.names import ATTEMPT, ROLE_INDEX

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
    base = name.removesuffix(f"-r{attempt}") if attempt > 1 else name
    return f"{base}-r{following}"


def newest_attempts(jobs: Iterable[Object]) -> tuple[list[Object], list[Object]]:
    """Returns the jobs of the newest attempt of each role, and those of earlier attempts.

    Jobs without the label of an attempt are all of the first kind.
    """
    newest: dict[str, int] = {}
    jobs = list(jobs)
    for job in jobs:
        role = label(job, ROLE_INDEX)
        newest[role] = max(attempt_of(job), newest.get(role, 1))
    mains = [job for job in jobs if attempt_of(job) == newest[label(job, ROLE_INDEX)]]
    earlier = [job for job in jobs if attempt_of(job) < newest[label(job, ROLE_INDEX)]]
    return mains, earlier
