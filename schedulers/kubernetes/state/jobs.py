"""Derives the state of submitted objects from their conditions, and the reason for it."""

from __future__ import annotations

import collections
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from torchx.exit_codes import signal_of
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    label,
    short,
    text_at,
    time_of,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.facts import Facts, is_ended_by_us, role_index
from torchx.schedulers.kubernetes.names import CANCELLED, CLOSED, RESTARTED
from torchx.scheduling import observation
from torchx.scheduling.observation import Replica
from torchx.specs.status import AppState, FirstFailure, Reason, is_terminal


def job_facts(kind: str, main: Object) -> JobFacts:
    """Returns the state of a submitted object."""
    number = role_index(main)
    if kind == "job" and number is not None:
        role = number
    else:
        role = -1
    status = main.get("status") or {}
    if kind == "volcano":
        return _volcano_facts(role, status)
    true = true_conditions(main)
    for name, state in _ENDED.items():
        if name in true:
            # pods may succeed on TERM; a job that had ended before is not suspended and has another reason
            cut = annotation(main, CANCELLED) and ("Suspended" in true or true[name].get("reason") == _CUT)
            if cut or is_closed(main, true[name]):
                state = AppState.CANCELLED
            return _ended_job(role, state, true[name], status)
    ending = true.get("FailureTarget") or true.get("SuccessCriteriaMet")
    if ending is not None:
        if is_closed(main, ending):
            reason = ""
        else:
            reason = text_at(ending, "reason")
        return JobFacts(role, AppState.RUNNING, reason, ending=True, details=status)
    if value_at(main, "spec", "suspend"):
        return JobFacts(role, AppState.SUBMITTED, "Suspended", details=status)
    return JobFacts(role, _state_before_end(status), details=status)


def _state_before_end(status: Data) -> AppState:
    if status.get("ready") or status.get("succeeded"):
        return AppState.RUNNING
    if status.get("active") or status.get("startTime"):
        return AppState.PENDING
    return AppState.SUBMITTED


def is_closed(main: Object, condition: Data) -> bool:
    """Returns True if torchx has ended a job by a deadline.

    Args:
        main: the job.
        condition: the condition of its end.
    """
    deadline = value_at(main, "spec", "activeDeadlineSeconds")
    marked = is_ended_by_us(main) or annotation(main, RESTARTED)
    return bool(deadline == CLOSED and marked and condition.get("reason") == "DeadlineExceeded")


_CUT = "FailedIndexes"
"""The failure reason of a job whose pods were ended one by one, as no other limit applies."""


def _ended_job(role: int, state: AppState, condition: Data, status: Data) -> JobFacts:
    at = time_of(status.get("completionTime")) or time_of(condition.get("lastTransitionTime"))
    return JobFacts(
        role, state, text_at(condition, "reason"), short(condition.get("message")), at, details=status
    )


_ENDED = {"Complete": AppState.SUCCEEDED, "Completed": AppState.SUCCEEDED, "Failed": AppState.FAILED}

_VOLCANO = {
    "Completed": AppState.SUCCEEDED,
    "Failed": AppState.FAILED,
    "Terminated": AppState.FAILED,
    "Aborted": AppState.CANCELLED,
    "Running": AppState.RUNNING,
    "Restarting": AppState.RUNNING,
    "Completing": AppState.RUNNING,
    "Aborting": AppState.RUNNING,
    "Terminating": AppState.RUNNING,
    "Pending": AppState.PENDING,
    "Inqueue": AppState.PENDING,
}


def _volcano_facts(role: int, status: Data) -> JobFacts:
    reported = status.get("state") or {}
    state = _VOLCANO.get(str(reported.get("phase")), AppState.SUBMITTED)
    at = None
    if is_terminal(state):
        at = time_of(reported.get("lastTransitionTime"))
    ending = str(reported.get("phase")) in ("Completing", "Aborting", "Terminating")
    return JobFacts(
        role, state, text_at(reported, "reason"), short(reported.get("message")), at, ending, status
    )


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
        return why._replace(text=f"{why.text} ({number} of {len(statuses)} replicas)")
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
