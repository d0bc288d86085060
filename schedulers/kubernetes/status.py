"""Derives the status of an application from its objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from torchx.lazy import lazy_imports
from torchx.printable import joined
from torchx.schedulers.kubernetes.api.client import Object
from torchx.schedulers.kubernetes.api.objects import annotation, short, time_of, true_conditions, value_at
from torchx.schedulers.kubernetes.gang.attempts import attempt_of
from torchx.schedulers.kubernetes.gang.records import Restart, used_retries
from torchx.schedulers.kubernetes.gang.restarts import Phase, due_restart, is_gang, phase_of
from torchx.schedulers.kubernetes.objects import (
    CANCELLED,
    HELD,
    Facts,
    is_ended_by_us,
)
from torchx.schedulers.kubernetes.state import reasons
from torchx.schedulers.kubernetes.state.attempts import live
from torchx.schedulers.kubernetes.state.jobs import job_facts
from torchx.schedulers.kubernetes.state.outcome import outcome_of
from torchx.schedulers.kubernetes.state.reasons import JobFacts
from torchx.schedulers.kubernetes.state.replicas import Member, Replicas, members_of
from torchx.schedulers.kubernetes.sweeps import view
from torchx.schedulers.kubernetes.sweeps.facts import run_facts
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.observation import CANCELLING, Observation, Replica, or_zero
from torchx.scheduling.retry_rules import RetryRules
from torchx.specs.app_metadata import own_entries
from torchx.specs.status import (
    AppState,
    EndCause,
    FirstFailure,
    Reason,
    is_terminal,
)

with lazy_imports:
    from torchx.schedulers.kubernetes.gang import causes, runs
    from torchx.schedulers.kubernetes.services import view as service_view


HELD_FOR = 60.0
"""Seconds after which an incomplete submission or a restart that is due counts as interrupted."""

INTERRUPTED = "its submission was interrupted"
SAVING = "its time limit is near: replicas have ended, the others save their state"


def describe_runs(job: Facts, runs: Iterable[int], now: float) -> Iterator[DescribeAppResponse]:
    """Yields the status of runs that share a Job, as :func:`describe_safely`; deleted ones are left out.

    Args:
        job: the Job with its pods.
        runs: the indexes of the runs.
        now: seconds since the epoch.
    """
    pods: dict[str, list[Object]] = {}
    for pod in job.pods:
        pods.setdefault(view.index_of(pod), []).append(pod)
    alike: dict[tuple[bool, ...], DescribeAppResponse] = {}
    for run in runs:
        if not view.has_index(job.mains[0], run):
            continue
        facts = run_facts(replace(job, pods=pods.get(str(run), [])), run)
        kind = view.kind_of(job.mains[0], run)
        if facts.pods:
            yield describe_safely(facts, now)
            continue
        if kind not in alike:  # thousands of runs wait in the same way
            alike[kind] = describe_safely(facts, now)
        own = own_entries(value_at(facts.record, "app", "metadata"))
        yield replace(alike[kind], app_id=facts.app_id, metadata=own)


def describe(facts: Facts, now: float, *, failed: bool = False) -> DescribeAppResponse:
    """Returns the status of an application, without its roles and metadata.

    Args:
        facts: its objects.
        now: seconds since the epoch.
        failed: a replica has failed without retries left: return it also before the end.
    """
    jobs = [runs.as_finished(facts, main, job_facts(facts.kind, main)) for main in facts.mains]
    services = service_view.ServiceView(facts)
    seen = services.jobs(jobs)
    noted = outcome_of(facts.mains)
    replicas = Replicas(facts, members_of(facts), now, noted, causes.never_retried(facts))
    state, msg = _current_state(facts, seen, replicas, now)
    if is_terminal(noted.state):
        state, msg = noted.state, noted.msg
    statuses = [replicas.status(member, _job_of(jobs, member), state) for member in replicas.members]
    statuses = runs.with_runs(facts, replicas.members, services.replicas(statuses))
    submitted = _submitted(facts)
    ended = noted.ended_at or _ended(facts, jobs, statuses, state, submitted)
    for at, member in enumerate(replicas.members):  # times end with the job, also if a pod is lost
        statuses[at] = reasons.as_ended(statuses[at], _job_of(jobs, member), state, ended)
    used = used_retries(facts)
    first = None
    if failed or state is AppState.FAILED:
        first = _first_failure(facts, replicas, seen, services.counting(statuses), used)
    reason = _reason(facts, jobs, services, statuses, state, Reason(msg), first)
    whole = Observation(
        facts.app_id,
        str(value_at(facts.record, "app", "name") or facts.name),
        submitted,
        dict(facts.cfg),
        value_at(facts.record, "app", "metadata"),
        state,
        replace(reason, text=joined(reason.text, replicas.taken_away(is_terminal(state)))),
        statuses,
        first,
        _started(facts, statuses, state),
        ended,
        _restarts(facts),
        runs.run_of(used),
    )
    return observation.describe(whole)


def _reason(
    facts: Facts,
    jobs: list[JobFacts],
    services: service_view.ServiceView,
    statuses: list[Replica],
    state: AppState,
    known: Reason,
    first: FirstFailure | None,
) -> Reason:
    """Returns the reason of a state: the known one, or else that of jobs, services or waiting replicas."""
    if state is AppState.FAILED:
        cause = None
        if reasons.DEADLINE in {job.reason for job in jobs}:
            cause = EndCause.TIME_LIMIT
        if first is None and not known.text:
            return Reason(_without_pods(jobs[0].message), cause)
        return Reason(known.text, cause)
    if known.text or is_terminal(state):
        return known
    waits_for = services.message(state)
    if waits_for:
        return Reason(waits_for)
    return reasons.waiting(statuses, facts.events)


def _first_failure(
    facts: Facts,
    replicas: Replicas,
    jobs: list[JobFacts],
    statuses: list[Replica],
    used: Mapping[str, int],
) -> FirstFailure | None:
    """Returns the first failure with its reason, from replicas and jobs that count for the application."""
    if replicas.noted.failure is not None:
        return replicas.noted.failure
    first = reasons.first_failure(jobs, statuses, replicas.unproven)
    if first is None:
        return None
    return runs.with_limit(_with_refusal(facts, replicas, first), facts.cfg, used)


def _without_pods(message: str) -> str:
    """Returns the message of a failed application of which no pod exists."""
    if message:
        return f"a replica failed, and its pod no longer exists: {message}"
    return "its pods no longer exist"


def describe_safely(facts: Facts, now: float) -> DescribeAppResponse:
    """Returns the status of an application; UNKNOWN with a reason if its data is malformed.

    Args:
        facts: its objects.
        now: seconds since the epoch.
    """
    try:
        response = describe(facts, now)
    except Exception as error:  # one malformed application must not prevent a listing of the others
        msg = short(f"its objects cannot be read: {type(error).__name__}: {error}")
        return DescribeAppResponse(facts.app_id, AppState.UNKNOWN, msg=msg, name=facts.name)
    if not facts.damage:
        return response
    # with the state of its objects if these are valid
    if facts.malformed:
        why = facts.damage
    else:
        why = f"{facts.damage}; its {facts.kind} is {response.state.name}"
    return replace(response, state=AppState.UNKNOWN, msg=short(why), first_failure=None)


def _current_state(
    facts: Facts, jobs: list[JobFacts], replicas: Replicas, now: float
) -> tuple[AppState, str]:
    """Returns the state of the application and a reason; marks the roles that are about to start again."""
    running = any(live(pod) for pod in facts.pods)
    if facts.partial:  # the pods that run were not read
        running = running or any(job.details.get("active") or job.details.get("terminating") for job in jobs)
    restart = due_restart(facts)
    if restart is not None:
        replicas.restarting = set(restart.attempts)
        late = now - restart.at > HELD_FOR and not (restart.marked and running)
        return AppState.RUNNING if running else AppState.PENDING, _restart_text(restart, late=late)
    state, msg = _state(facts, jobs, replicas, running, now)
    saving = not is_terminal(state) and phase_of(facts) is Phase.SAVING
    return state, SAVING if saving else msg


def _state(
    facts: Facts, jobs: list[JobFacts], replicas: Replicas, running: bool, now: float
) -> tuple[AppState, str]:
    """Returns the state of the application, and a reason unless its replicas have one."""
    states = {job.state for job in jobs}
    unended = _unended(facts, jobs)
    ending = [main for main in unended if is_ended_by_us(main)]
    is_open = len(ending) < len(unended)
    running = running or not _is_end_observed(facts, ending)
    if AppState.FAILED in states or outcome_of(facts.mains).failure is not None:
        return _state_of_failed(facts, jobs, is_open, running)
    if states == {AppState.SUCCEEDED}:
        return AppState.SUCCEEDED, ""
    if not is_open and (AppState.CANCELLED in states or _is_marked(facts, CANCELLED)):
        running = running or any(job.details.get("terminating") for job in jobs)
        if running:
            return (AppState.RUNNING, CANCELLING)
        return (AppState.CANCELLED, observation.CANCELLED)
    if _is_marked(facts, HELD):
        return _state_of_held(facts, now)
    return _state_of_open(facts, jobs, replicas.started, running)


def _unended(facts: Facts, jobs: list[JobFacts]) -> list[Object]:
    return [main for main, job in zip(facts.mains, jobs, strict=True) if not is_terminal(job.state)]


def _state_of_held(facts: Facts, now: float) -> tuple[AppState, str]:
    """Returns the state of an application whose submission is not complete."""
    newest = max(or_zero(time_of(m["metadata"].get("creationTimestamp"))) for m in facts.mains)
    if now - newest.timestamp() > HELD_FOR:
        return AppState.FAILED, INTERRUPTED
    return AppState.SUBMITTED, "it is being submitted"


def _is_marked(facts: Facts, mark: str) -> bool:
    return any(annotation(main, mark) for main in facts.mains)


def _state_of_failed(
    facts: Facts, jobs: list[JobFacts], is_open: bool, running: bool
) -> tuple[AppState, str]:
    """Returns the state of an application with a failed job."""
    if is_open:
        return AppState.RUNNING, reasons.RUN_ON if facts.fails_fast else reasons.CONTINUES
    if running:
        return AppState.RUNNING, reasons.BEING_ENDED
    failed = (job for job in jobs if job.state is AppState.FAILED)
    return AppState.FAILED, next(filter(None, map(reasons.why, failed)), "")


def _state_of_open(facts: Facts, jobs: list[JobFacts], started: bool, running: bool) -> tuple[AppState, str]:
    """Returns the state of an application that has neither ended nor been cancelled."""
    states = {job.state for job in jobs}
    if any(job.reason == "Suspended" for job in jobs) and not running:
        return AppState.SUBMITTED, reasons.suspension_reason(facts)
    if started or not states <= {AppState.PENDING, AppState.SUBMITTED}:
        msgs = (reasons.ENDING[job.reason] for job in jobs if job.reason in reasons.ENDING)
        return AppState.RUNNING, next(msgs, "")
    if facts.partial and sum(int(job.details.get("active") or 0) for job in jobs) > len(facts.pods):
        return AppState.RUNNING, ""
    return (AppState.PENDING if facts.pods or AppState.PENDING in states else AppState.SUBMITTED), ""


def _is_end_observed(facts: Facts, ending: list[Object]) -> bool:
    """Returns True if the cluster has observed all requested ends; until then it may create pods."""
    if facts.kind == "volcano":
        return not ending
    if facts.kind == "jobset" and ending:
        ending = ending + [job for job in facts.jobs if not is_terminal(job_facts("job", job).state)]
    return all("Suspended" in true_conditions(each) for each in ending)


def _job_of(jobs: list[JobFacts], member: Member) -> JobFacts:
    return next((job for job in jobs if job.role == member.role_index), jobs[0])


def _with_refusal(facts: Facts, replicas: Replicas, first: FirstFailure) -> FirstFailure:
    """Returns the first failure with the reason why it was not retried, if it has one."""
    member = next((m for m in replicas.members if (m.role, m.replica) == (first.role, first.replica)), None)
    pod = None
    if member is not None:
        pod = replicas.newest_pod(member)
    if member is None or pod is None or first.attempt >= member.max_attempts:
        return first
    refused = causes.refusal(RetryRules.recorded(facts.cfg), pod)
    return replace(first, msg=joined(first.msg, refused))


def _restart_text(restart: Restart, *, late: bool) -> str:
    """Returns the message of a restart that is due; if it is late, no process carries it out."""
    numbers = set(restart.attempts.values())
    following = "the next attempt"
    if len(numbers) == 1:
        following = f"attempt {numbers.pop() + 1}"
    return f"{restart.why}; {following} {'is late: `torchx wait` starts it' if late else 'follows'}"


def _restarts(facts: Facts) -> int:
    """Returns the number of restarts of the application; -1 if replicas restart individually."""
    if is_gang(facts):
        return max(attempt_of(main) for main in facts.mains) - 1
    if facts.kind == "job":
        if any(role.get("max_retries") for role in facts.roles):
            return -1
        return 0
    status = facts.mains[0].get("status") or {}
    return int(status.get("restarts") or status.get("retryCount") or 0)


def _submitted(facts: Facts) -> datetime | None:
    created = [time_of(job["metadata"].get("creationTimestamp")) for job in (*facts.mains, *facts.earlier)]
    return min(created, key=or_zero)


def _started(facts: Facts, statuses: Iterable[Replica], state: AppState) -> datetime | None:
    """Returns the time of the first start, of a replica or else of a job."""
    times = [attempt.started_at for status in statuses for attempt in status.attempts]
    if not any(times) and state is not AppState.PENDING:
        times = [time_of(value_at(job, "status", "startTime")) for job in facts.jobs]
    return min((at for at in times if at is not None), default=None)


def _ended(
    facts: Facts,
    jobs: list[JobFacts],
    statuses: list[Replica],
    state: AppState,
    submitted: datetime | None,
) -> datetime | None:
    """Returns the time of the last end; None before the end."""
    if not is_terminal(state):
        return None
    marks = [time_of(annotation(main, CANCELLED)) for main in facts.mains]
    times = [job.ended_at for job in jobs] + marks + [a.ended_at for s in statuses for a in s.attempts[-1:]]
    return max((at for at in times if at is not None), default=submitted)
