"""Derives the status of an application from its objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from torchx.lazy import lazy_imports
from torchx.printable import joined
from torchx.schedulers.kubernetes.api.client import Object
from torchx.schedulers.kubernetes.api.objects import annotation, short, time_of, true_conditions, value_at
from torchx.schedulers.kubernetes.facts import Facts, attempt_of, is_ended_by_us
from torchx.schedulers.kubernetes.names import CANCELLED, HELD
from torchx.schedulers.kubernetes.state import jobs as reasons
from torchx.schedulers.kubernetes.state import run_view as view
from torchx.schedulers.kubernetes.state.attempts import live
from torchx.schedulers.kubernetes.state.jobs import JobFacts, job_facts
from torchx.schedulers.kubernetes.state.outcome import outcome_of
from torchx.schedulers.kubernetes.state.replicas import Member, Replicas, members_of
from torchx.schedulers.kubernetes.state.restarts import (
    Restart,
    as_finished,
    due_restart,
    is_gang,
    is_saving,
    never_retried,
    refusal,
    run_of,
    used_retries,
    with_limit,
    with_runs,
)
from torchx.schedulers.kubernetes.state.run_view import run_facts
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.observation import Observation, Phase, Replica, Whole, decide, or_zero
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
    from torchx.schedulers.kubernetes.state import service_view


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
    jobs = [as_finished(facts, main, job_facts(facts.kind, main)) for main in facts.mains]
    services = service_view.ServiceView(facts)
    seen = services.jobs(jobs)
    noted = outcome_of(facts.mains)
    replicas = Replicas(facts, members_of(facts), now, noted, never_retried(facts))
    whole = _whole(facts, seen, replicas, now)
    state, known = decide(whole)
    statuses = [replicas.status(member, _job_of(jobs, member), state) for member in replicas.members]
    statuses = with_runs(facts, replicas.members, services.replicas(statuses))
    submitted = _submitted(facts)
    ended = noted.ended_at or _ended_at(facts, jobs, statuses, state, submitted)
    for at, member in enumerate(replicas.members):  # times end with the job, also if a pod is lost
        statuses[at] = reasons.as_ended(statuses[at], _job_of(jobs, member), state, ended)
    used = used_retries(facts)
    first = None
    if failed or state is AppState.FAILED:
        first = _first_failure(facts, replicas, seen, services.counting(statuses), used)
    reason = _reason(facts, jobs, services, statuses, state, known, first)
    reason = reason._replace(text=joined(reason.text, replicas.taken_away(is_terminal(state))))
    observed = Observation(
        facts.app_id,
        str(value_at(facts.record, "app", "name") or facts.name),
        submitted,
        dict(facts.cfg),
        value_at(facts.record, "app", "metadata"),
        replace(whole, reason=reason),
        statuses,
        first,
        _started(facts, statuses, state),
        ended,
        _restarts(facts),
        run_of(used),
    )
    return observation.describe(observed)


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
    return with_limit(_with_refusal(facts, replicas, first), facts.cfg, used)


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


def _whole(facts: Facts, jobs: list[JobFacts], replicas: Replicas, now: float) -> Whole:
    """Returns the facts that decide the state; marks the roles that are about to start again."""
    noted = replicas.noted
    if is_terminal(noted.state):
        return Whole(end=noted.state, reason=Reason(noted.msg))
    running = _has_running(facts, jobs)
    restart = due_restart(facts)
    if restart is not None:
        replicas.restarting = set(restart.attempts)
        late = now - restart.at > HELD_FOR and not (restart.marked and running)
        phase = Phase.RUNNING if running else Phase.WAITING
        return Whole(phase, reason=Reason(_restart_text(restart, late=late)))
    unended = [main for main, job in zip(facts.mains, jobs, strict=True) if not is_terminal(job.state)]
    ending = [main for main in unended if is_ended_by_us(main)]
    running = running or not _is_end_observed(facts, ending)
    whole = _ended(facts, jobs, len(ending) < len(unended), running)
    whole = whole or _held(facts, now) or _open(facts, jobs, running, replicas.started)
    if not is_terminal(decide(whole)[0]) and is_saving(facts):
        return replace(whole, reason=Reason(SAVING))
    return whole


def _has_running(facts: Facts, jobs: list[JobFacts]) -> bool:
    """Returns True if a pod may still run; of a listing, running pods were not read."""
    if any(live(pod) for pod in facts.pods):
        return True
    counts = (job.details.get(key) for job in jobs for key in ("active", "terminating"))
    return facts.partial and any(counts)


def _ended(facts: Facts, jobs: list[JobFacts], is_open: bool, running: bool) -> Whole | None:
    """Returns the facts about an application that has ended, or is being ended; None for others."""
    states = {job.state for job in jobs}
    if AppState.FAILED in states or outcome_of(facts.mains).failure is not None:
        text = _why_failed(facts, jobs, is_open, running)
        return Whole(end=AppState.FAILED, live=is_open or running, reason=Reason(text))
    if states == {AppState.SUCCEEDED}:
        return Whole(end=AppState.SUCCEEDED)
    if not is_open and (AppState.CANCELLED in states or _is_marked(facts, CANCELLED)):
        return Whole(cancelled=True, live=running or any(job.details.get("terminating") for job in jobs))
    return None


def _why_failed(facts: Facts, jobs: list[JobFacts], is_open: bool, running: bool) -> str:
    """Returns the reason of an application with a failed job."""
    if is_open:
        return reasons.RUN_ON if facts.fails_fast else reasons.CONTINUES
    if running:
        return reasons.BEING_ENDED
    failed = (job for job in jobs if job.state is AppState.FAILED)
    return next(filter(None, map(reasons.why, failed)), "")


def _is_marked(facts: Facts, mark: str) -> bool:
    return any(annotation(main, mark) for main in facts.mains)


def _held(facts: Facts, now: float) -> Whole | None:
    """Returns the facts about an application whose submission is not complete; None for others."""
    if not _is_marked(facts, HELD):
        return None
    newest = max(or_zero(time_of(m["metadata"].get("creationTimestamp"))) for m in facts.mains)
    if now - newest.timestamp() > HELD_FOR:
        return Whole(end=AppState.FAILED, reason=Reason(INTERRUPTED))
    return Whole(Phase.ACCEPTED, reason=Reason("it is being submitted"))


def _open(facts: Facts, jobs: list[JobFacts], running: bool, started: bool) -> Whole:
    """Returns the facts about an application that has neither ended nor been cancelled."""
    states = {job.state for job in jobs}
    if not running and "Suspended" in {job.reason for job in jobs}:
        return Whole(Phase.ACCEPTED, reason=Reason(reasons.suspension_reason(facts)))
    if started or not states <= {AppState.PENDING, AppState.SUBMITTED}:
        texts = (reasons.ENDING[job.reason] for job in jobs if job.reason in reasons.ENDING)
        return Whole(Phase.RUNNING, reason=Reason(next(texts, "")))
    if facts.partial and sum(int(job.details.get("active") or 0) for job in jobs) > len(facts.pods):
        return Whole(Phase.RUNNING)
    return Whole(Phase.WAITING if facts.pods or AppState.PENDING in states else Phase.ACCEPTED)


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
    refused = refusal(RetryRules.recorded(facts.cfg), pod)
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


def _ended_at(
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
