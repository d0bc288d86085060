"""Derives the state of a submitted object from its conditions."""

from __future__ import annotations

from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import (
    Object,
    annotation,
    short,
    text_at,
    time_of,
    true_conditions,
    value_at,
)
from torchx.schedulers.kubernetes.names import RESTARTED
from torchx.schedulers.kubernetes.objects import CANCELLED, CLOSED, is_ended_by_us, role_index
from torchx.schedulers.kubernetes.state.reasons import JobFacts
from torchx.specs.status import AppState, is_terminal


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
