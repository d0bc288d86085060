"""Describe a batch job: its state, and its replicas from the files written by their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torchx.exit_codes import KILLED
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.machine.files import names_in
from torchx.schedulers.shared.batch.batch_log import last_error_line, log_tail
from torchx.schedulers.shared.batch.ends import CAUSES, full_disk
from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import BatchPaths, path_exists
from torchx.schedulers.shared.batch.progress import attempts_of, run_of
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.listing import row_of
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.observation import Observation, Replica, Whole
from torchx.scheduling.responses import local_time
from torchx.specs.run_options import RunOptions
from torchx.specs.status import AppState, EndCause, Reason, is_terminal

with lazy_imports:
    from torchx.schedulers.shared.batch import attempts as node_attempts
    from torchx.schedulers.shared.batch import services as job_services


MAX_LISTED_REPLICAS = 64
"""Maximum replicas of a job whose files are read for a listing."""


class Reasons(NamedTuple):
    """The knowledge of an engine about the ends of its jobs.

    Attributes:
        limit: returns the time limit of run options.
        failure: returns why a job failed without a failed replica, and the name of this end.
    """

    limit: Callable[[RunOptions], LimitRule] = LimitRule.of
    failure: Callable[[BatchRecord], tuple[str, str]] = lambda record: ("", "")


def describe(
    record: BatchRecord, app_id: str, outcome: Outcome, reasons: Reasons, hosts: Sequence[str] = ()
) -> DescribeAppResponse:
    """Returns the status of a job, without roles and metadata.

    Args:
        record: the record of the job.
        app_id: its id in handles.
        outcome: its state.
        reasons: the knowledge of its engine.
        hosts: the host of each role that has only one; empty for others.
    """
    paths = record.paths
    replicas: list[Replica] = []
    needed: list[Replica] = []
    for number, role in enumerate(record.app.get("roles", ())):
        rule = job_services.recorded_rule(role)
        host = hosts[number] if number < len(hosts) else ""
        of_role = [
            _replica(record, outcome, role, replica, rule is not None, host)
            for replica in range(role.get("num_replicas", 1))
        ]
        if rule is not None:
            of_role = list(_with_readiness(paths.ready(number), of_role))
        if rule is None or rule.critical:
            needed += of_role
        replicas += of_role
    first = None
    if outcome.state is AppState.FAILED:
        ended = [r for r in needed if r.attempts and r.attempts[-1].ended_at is not None]
        first = observation.first_failure(ended, _JOB_WIDE_CAUSES)
        if first is None and not outcome.msg:
            msg, word = reasons.failure(record)
            outcome = outcome._replace(msg=msg, word=word or outcome.word)
            if word:
                return describe(record, app_id, outcome, reasons, hosts)
    if first is None:
        outcome = outcome._replace(msg=_reason_of(outcome, paths, needed))
    elif first.signal == "SIGKILL":
        first = replace(first, msg=first.msg or KILLED)
    seen = replace(
        _observe(record, app_id, outcome, reasons, replicas),
        first_failure=first,
        restarts=max(0, attempts_of(paths) - 1),
        run=run_of(paths),
    )
    log_dir = None
    if record.folder:
        log_dir = str(paths.folder)
    return replace(observation.describe(seen, paths.replica), log_dir=log_dir, steps_dir=paths.folder)


def listed(
    record: BatchRecord, app_id: str, outcome: Outcome, reasons: Reasons, *, is_own: bool = True
) -> ListAppResponse:
    """Returns the row of a job in a listing; reads the files of its replicas only if one may have the reason.

    A large job is listed without: its files may be on a slow file system.
    """
    unexplained = outcome.state is AppState.FAILED and not outcome.msg
    count = sum(role.get("num_replicas", 1) for role in record.app.get("roles", ()))
    if unexplained and count <= MAX_LISTED_REPLICAS:
        status = describe(record, app_id, outcome, reasons)
    else:
        status = observation.describe(_observe(record, app_id, outcome, reasons))
    handle = f"{record.engine}://{record.session}/{app_id}"
    if status.cause is EndCause.TIME_LIMIT:
        code = None
    else:
        code = outcome.exit_code or None
    return row_of(status, exit_code=code, is_own=is_own, app_handle=handle)


def _observe(
    record: BatchRecord, app_id: str, outcome: Outcome, reasons: Reasons, replicas: Sequence[Replica] = ()
) -> Observation:
    """Returns the observation of a job, without its restarts and its first failure."""
    begun, last = _span(replicas)
    return Observation(
        app_id,
        record.name,
        local_time(record.submitted_at),
        record.cfg,
        record.app.get("metadata"),
        Whole.of(outcome.state, _reason(record, outcome, reasons)),
        replicas,
        started_at=local_time(_start(outcome, record, begun)),
        ended_at=local_time(_end(outcome, record, last)),
    )


def _start(outcome: Outcome, record: BatchRecord, begun: float | None = None) -> float | None:
    """Returns the time of the first replica's start, else that of the engine, which has whole seconds."""
    started = begun or outcome.started_at
    if begun and run_of(record.paths) == 1:  # the clock of a node may be behind
        started = max(begun, outcome.started_at or 0.0)
    if started is None:
        return None
    return max(started, record.submitted_at)


def _end(outcome: Outcome, record: BatchRecord, last: float | None = None) -> float | None:
    """Returns the time of the end, not before the submission or the end of the last replica."""
    if outcome.ended_at is None:
        return last
    return max(outcome.ended_at, record.submitted_at, outcome.started_at or 0.0, last or 0.0)


def _replica(
    record: BatchRecord, outcome: Outcome, role: Data, replica: int, service: bool, host: str
) -> Replica:
    """Returns a replica.

    Args:
        record: the record of its job.
        outcome: the state of the job.
        role: its role.
        replica: its id within the role.
        service: whether it belongs to a service.
        host: its node, if its role has only one.
    """
    name, retries, paths = role["name"], role.get("max_retries", 0), record.paths
    attempts = node_attempts.statuses_of(
        paths.attempts(name, replica), outcome, service=service, retries=retries, cfg=record.cfg
    )
    state = outcome.state
    if state is AppState.RUNNING and job_services.waits_for_others(role):
        state = AppState.PENDING
    number = 1
    if attempts:
        last, host_of_last = attempts[-1]
        number = last.number
        again = outcome.state is AppState.RUNNING and attempts_of(paths) > number
        if not (again or outcome.state is AppState.PENDING):  # requeued, or about to restart
            state, host = last.state, host_of_last or host
    elif outcome.state is AppState.FAILED or (service and is_terminal(outcome.state)):
        state = AppState.CANCELLED  # not started, or not yet reported by its node
    return Replica(name, replica, [attempt for attempt, _ in attempts], state, host, max(retries + 1, number))


def _with_readiness(folder: Path, replicas: Sequence[Replica]) -> Iterator[Replica]:
    """Yields the replicas of a service, with their readiness and since when they are ready."""
    names = names_in(folder)
    for replica in replicas:
        ready, attempts = False, replica.attempts
        if replica.state is AppState.RUNNING and str(replica.id) in names:
            ready, at = True, node_attempts.ready_since(folder / str(replica.id))
            attempts = [*attempts[:-1], *(replace(a, ready_at=at) for a in attempts[-1:])]
        yield replace(replica, ready=ready, attempts=attempts)


def running_host(record: BatchRecord, role: str, replica: int) -> str:
    """Returns the node on which a replica of a running job runs; empty if it does not, or not yet."""
    paths = record.paths
    attempts = paths.attempts(role, replica)
    if not attempts:
        return ""
    number, latest = attempts[-1]
    if node_attempts.read_facts(latest / "end.json") is not None or attempts_of(paths) > number:
        return ""
    start = node_attempts.read_facts(latest / "start.json") or {}
    return str(start.get("host", ""))


def _reason(record: BatchRecord, outcome: Outcome, reasons: Reasons) -> Reason:
    """Returns the reason for the state of a job: its time limit, if that has ended it, or the engine's."""
    reason = Reason(outcome.msg, CAUSES.get(outcome.word))
    if outcome.state is not AppState.FAILED:
        return reason
    if outcome.word == "TIMEOUT" or path_exists(record.paths.expired):
        with suppress(ValueError):
            rule = reasons.limit(record.cfg)
            if rule.limit:
                return Reason(rule.reached(run_of(record.paths)), EndCause.TIME_LIMIT)
    return reason


def _reason_of(outcome: Outcome, paths: BatchPaths, needed: Sequence[Replica]) -> str:
    """Returns the reason for the state of a job of which no replica is known to have failed first."""
    if outcome.word == "OUT_OF_MEMORY":  # all were killed: unknown for which of them
        ends = (replica.attempts[-1] for replica in needed if replica.attempts)
        return next((end.msg for end in ends if end.cause is EndCause.OUT_OF_MEMORY), outcome.msg)
    if outcome.state is AppState.UNKNOWN:
        return full_disk(paths.folder) or outcome.msg
    if outcome.msg or outcome.state is not AppState.FAILED:
        return outcome.msg
    return full_disk(paths.folder) or last_error_line(log_tail(paths)) or outcome.exit_message


_JOB_WIDE_CAUSES = (EndCause.TIME_LIMIT, EndCause.NODE_LOST)


def _span(replicas: Sequence[Replica]) -> tuple[float | None, float | None]:
    """Returns the start of the first attempt and the end of the last one."""
    attempts = [attempt for replica in replicas for attempt in replica.attempts]
    begins = [a.started_at.timestamp() for a in attempts if a.started_at is not None]
    ends = [t.timestamp() for a in attempts if (t := a.ended_at or a.started_at) is not None]
    return min(begins, default=None), max(ends, default=None)
