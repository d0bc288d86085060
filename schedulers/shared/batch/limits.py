"""The time limit of a job, for its script."""

from __future__ import annotations

from typing import NamedTuple


class JobLimits(NamedTuple):
    """The time limit of a job.

    Attributes:
        limit: seconds of each run; 0 without a limit.
        notice: seconds before its end; 0 without a notice.
        signal: the name of the signal of the notice.
        requeues: the maximum number of requeues after the time limit.
        by_engine: whether it is requeued after a preemption and the failure of a node.
    """

    limit: int
    notice: int
    signal: str
    requeues: int
    by_engine: bool

    @property
    def is_empty(self) -> bool:
        """Whether a job needs no functions for limits."""
        return not (self.limit or self.notice or self.requeues or self.by_engine)

    def assignments(self) -> str:
        """Returns the variables of the script."""
        preempted = "yes" if self.by_engine else "no"
        return (
            f"limit={self.limit} notice={self.notice} signal={self.signal} "
            f"requeues={self.requeues} preempted={preempted}"
        )
