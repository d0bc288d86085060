"""The verdicts on the failures of a job; loads the rules of retries only for a job with retries."""

from __future__ import annotations

from typing import Any

from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.supervisor.policy import COUNTED, Gang
from torchx.supervisor.replicas import Running

with lazy_imports:
    from torchx.supervisor import retry_causes


class Verdicts:
    """Returns the verdict on each end of a replica.

    Args:
        record: the job.
        gang: its rules.
    """

    def __init__(self, record: JobRecord, gang: Gang) -> None:
        retried = any(role.max_retries for role in record.roles)
        # loaded now: torchx may be upgraded while the job runs
        self._causes = retry_causes.RetryCauses(record.cfg, gang) if retried else None

    def of(self, running: Running, facts: dict[str, Any], expected: bool) -> str:
        """Returns the verdict on the end of a replica; adds the reason against a retry to its facts.

        Args:
            running: the replica.
            facts: its exit code, its signal, and the reason that is known.
            expected: it has succeeded, or was ended by the supervisor.
        """
        return COUNTED if expected or self._causes is None else self._causes.verdict(running, facts)
