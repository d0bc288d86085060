"""Finds why an application waits, is being ended or has failed, from its jobs, pods and events."""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from torchx.exit_codes import signal_of
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import Object, label, short
from torchx.schedulers.kubernetes.objects import Facts
from torchx.scheduling import observation
from torchx.scheduling.observation import Replica
from torchx.specs.status import AppState, FirstFailure, Reason, is_terminal

BEING_ENDED = "a replica failed, the others are being ended"
CONTINUES = "a replica failed, the others continue"
RUN_ON = "a replica failed, the others still run: `torchx wait` ends them"


@dataclass(frozen=True)
class JobFacts:
    """The state of a submitted object.

    Attributes:
        role: the number of its role; -1 for an object with all roles.
        state: the state according to the object itself.
        reason: the API's reason code for its end.
        message: the API's message.
        ended_at: the time of its end.
        ending: whether its pods are being ended.
        details: its status in the API.
    """

    role: int
    state: AppState
    reason: str = ""
    message: str = ""
    ended_at: datetime | None = None
    ending: bool = False
    details: Data = field(default_factory=dict)


REPLICA_FAILURES = (
    "BackoffLimitExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
    "FailedJobs",
)
"""Reasons that only report a failed replica, which has details."""

DEADLINE = "DeadlineExceeded"
ENDING = {
    **dict.fromkeys(REPLICA_FAILURES, BEING_ENDED),
    DEADLINE: "it timed out and is being ended",
}


def suspension_reason(facts: Facts) -> str:
    """Returns why an application is suspended."""
    queue = label(facts.mains[0], "kueue.x-k8s.io/queue-name")
    if queue:
        return f"it waits for its turn in queue `{queue}`"
    return "it was suspended, but not by torchx"


def why(job: JobFacts) -> str:
    """Returns why a job failed, unless a replica shows it."""
    if job.reason == DEADLINE:
        return "it timed out"
    if job.reason in REPLICA_FAILURES:
        return ""
    return job.message or job.reason


def waiting(statuses: Sequence[Replica], events: Iterable[Object]) -> Reason:
    """Returns why an application waits: the most common reason of its replicas."""
    counts: collections.Counter[Reason] = collections.Counter()
    for status in statuses:
        if status.state is AppState.PENDING and status.attempts:
            last = status.attempts[-1]
            why = Reason(last.msg, last.cause)
            if last.state is AppState.FAILED:
                why = Reason(f"attempt {last.number + 1} will follow")
            counts[why] += 1
    counts.pop(Reason(), None)
    if counts:
        why, number = counts.most_common(1)[0]
        if number == len(statuses) == 1:
            return why
        return replace(why, text=f"{why.text} ({number} of {len(statuses)} replicas)")
    refused = [e for e in events if e.get("reason") == "FailedCreate"]
    if refused:
        message = str(refused[-1].get("message") or "")
        detail = short(message.partition("is forbidden: ")[2] or message)
        return Reason(f"the cluster rejects its pods: {detail}")
    return Reason()


def first_failure(
    jobs: list[JobFacts], statuses: list[Replica], unproven: Collection[tuple[str, int]]
) -> FirstFailure | None:
    """Returns the replica that failed first, from its pod or its job's message; None if it is not known.

    Args:
        jobs: the jobs.
        statuses: the replicas.
        unproven: the replicas that have failed, and of which nothing else is known.
    """
    if not any((s.role, s.id) in unproven for s in statuses):
        first = observation.first_failure(statuses)
        if first is not None:
            return first
    for job in jobs:
        # the pod was deleted; if a rule ended the job, its message names the pod
        match = re.search(r"for pod \S+/\S*-(\d+)-\w+ failed with exit code (\d+)", job.message)
        if match and job.role < len(names := list(dict.fromkeys(s.role for s in statuses))):
            code = int(match[2])
            name = signal_of(code)
            return FirstFailure(names[max(job.role, 0)], int(match[1]), 1, None if name else code, name)
    return None


def as_ended(status: Replica, job: JobFacts, whole: AppState, ended: datetime | None) -> Replica:
    """Returns the status of a replica, with its last attempt ended if its job or the application has."""
    if not (is_terminal(whole) or is_terminal(job.state)):
        return status
    if not status.attempts or is_terminal(status.attempts[-1].state):
        return status
    last = status.attempts[-1]
    state = AppState.CANCELLED
    if status.state is not None and is_terminal(status.state):
        state = status.state
    ended = job.ended_at or ended
    over = replace(last, state=state, msg="", cause=None, ended_at=ended if last.started_at else None)
    return replace(status, state=state, attempts=[*status.attempts[:-1], over])
