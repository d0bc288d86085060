"""Describe a Slurm job: its state, and its replicas from the files written by their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from torchx.errors import UsageError
from torchx.exit_codes import KILLED
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.machine.files import names_in
from torchx.schedulers.shared.listing import row_of
from torchx.schedulers.slurm.commands import NoAnswerError
from torchx.schedulers.slurm.folders.batch_log import last_error_line, log_tail, unshared_folder
from torchx.schedulers.slurm.folders.progress import attempts_of, run_of
from torchx.schedulers.slurm.outcome import (
    Outcome,
    outcome_without_slurm,
)
from torchx.schedulers.slurm.parse import JobFacts, hosts_of
from torchx.schedulers.slurm.paths import SlurmPaths, path_exists, read_own
from torchx.schedulers.slurm.queue import SlurmJob, find, find_record, list_jobs
from torchx.schedulers.slurm.reasons import CAUSES, SCRIPT_KILLED, full_disk
from torchx.schedulers.slurm.record import SlurmRecord
from torchx.scheduling import observation
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.checks import require_replicas, unknown_application
from torchx.scheduling.observation import Observation, Replica, Whole
from torchx.scheduling.responses import local_time
from torchx.specs.handles import make_app_handle
from torchx.specs.run_options import RunOptions
from torchx.specs.status import (
    AppState,
    EndCause,
    Reason,
    is_terminal,
)

with lazy_imports:
    from torchx.schedulers.slurm.node import attempts as node_attempts
    from torchx.schedulers.slurm.node import job_limits, job_services
    from torchx.specs import serialize


MAX_LISTED_REPLICAS = 64
"""Maximum replicas of a job whose files are read for a listing."""


def describe_app(app_id: str) -> DescribeAppResponse | None:
    """Returns the description of a job with its roles, or None if it is unknown."""
    job = _find(app_id)
    if job is None:
        return None
    status = _describe_job(job)
    try:
        app = serialize.app_from_dict(job.record.app)
    except UsageError as error:
        return replace(status, msg=status.msg or f"its record is damaged: {error.message}")
    return replace(status, roles=app.roles, metadata=app.metadata)


def glance(app_id: str) -> DescribeAppResponse | None:
    """Returns the status of a job without its roles, or None if it is unknown."""
    job = _find(app_id)
    if job is None:
        return None
    return _describe_job(job)


def _describe_job(job: SlurmJob) -> DescribeAppResponse:
    return replace(describe(job.record, job.app_id, job.outcome, job.queue), owner=job.owner)


def describe_native(app_id: str) -> list[JobFacts] | None:
    """Returns the facts of squeue on each part of a job, or None if it is unknown."""
    job = _find(app_id)
    if job is None:
        return None
    return list(job.queue)


def provenance_folder(app_id: str) -> Path | None:
    """Returns the folder for the source of a job, None without a folder of the job."""
    record = find_record(app_id)
    folders = []
    if record is not None:
        folders = record.folders
    return next((SlurmPaths(folder).provenance for folder in folders if folder.is_dir()), None)


def recorded(app_id: str) -> str:
    """Returns the handle of a job with a record, without a query; empty without one."""
    record = find_record(app_id)
    if record is None or record.damage:
        return ""
    return make_app_handle("slurm", record.session, app_id)


def exists(app_id: str) -> bool:
    """Returns True if a job is known; queries Slurm only if it has no record."""
    return find_record(app_id) is not None or _find(app_id) is not None


def list_apps(cfg: RunOptions | None) -> list[ListAppResponse]:
    """Returns the jobs of torchx, newest first; run option ``all_users`` includes jobs of other users."""
    jobs = list_jobs(bool((cfg or {}).get("all_users")))
    return [listed(job.record, job.app_id, job.outcome, is_own=not job.owner) for job in jobs]


def _find(app_id: str) -> SlurmJob | None:
    """Returns a job, or None; if Slurm does not respond, its error has the status by the record."""
    try:
        return find(app_id)
    except NoAnswerError as error:
        record = find_record(app_id)
        if record is not None:
            error.last_known = describe(record, app_id, outcome_without_slurm(record), ())
        raise


def describe(
    record: SlurmRecord, app_id: str, outcome: Outcome, queue: Sequence[JobFacts]
) -> DescribeAppResponse:
    """Returns the status of a job, without roles and metadata."""
    paths = record.paths
    replicas: list[Replica] = []
    needed: list[Replica] = []
    for number, role in enumerate(record.app.get("roles", ())):
        rule = job_services.recorded_rule(role)
        host = _only_host(number, queue)
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
        if first is None and not outcome.msg and (killed := _why_step_was_killed(record)):
            return describe(record, app_id, outcome._replace(msg=killed, word=SCRIPT_KILLED), queue)
    if first is None:
        outcome = outcome._replace(msg=_reason_of(outcome, paths, needed))
    elif first.signal == "SIGKILL":
        first = replace(first, msg=first.msg or KILLED)
    seen = replace(
        _observe(record, app_id, outcome, replicas),
        first_failure=first,
        restarts=max(0, attempts_of(paths) - 1),
        run=run_of(paths),
    )
    log_dir = None
    if record.folder:
        log_dir = str(paths.folder)
    return replace(observation.describe(seen, paths.replica), log_dir=log_dir)


def _why_step_was_killed(record: SlurmRecord) -> str:
    """Returns the message of a job that failed first by a step of which no program has failed; else empty."""
    roles, paths = record.app.get("roles", ()), record.paths
    killed = re.fullmatch(rb"(137|143) ([0-9]{1,6})\s*", read_own(paths.folder / "first") or b"")
    if killed is None or int(killed[2]) >= len(roles):
        return ""
    if full_disk(paths.folder) or unshared_folder(paths, log_tail(paths)):
        return ""  # srun ends the replicas on other nodes
    return f"the step of {roles[int(killed[2])]['name']} was killed by {_STEP_SIGNALS[killed[1]]}"


_STEP_SIGNALS = {b"137": f"SIGKILL: {KILLED}", b"143": "SIGTERM: by scancel or another process"}
"""The signals that end a step without a failed program, and their senders, by the exit code of srun."""


def listed(record: SlurmRecord, app_id: str, outcome: Outcome, *, is_own: bool = True) -> ListAppResponse:
    """Returns the row of a job in a listing; reads the files of its replicas only if one may have the reason.

    A large job is listed without: its files may be on a slow file system.
    """
    unexplained = outcome.state is AppState.FAILED and not outcome.msg
    if unexplained and _count_replicas(record) <= MAX_LISTED_REPLICAS:
        status = describe(record, app_id, outcome, ())
    else:
        status = observation.describe(_observe(record, app_id, outcome))
    handle = f"slurm://{record.session}/{app_id}"
    if status.cause is EndCause.TIME_LIMIT:
        code = None
    else:
        code = outcome.exit_code or None
    return row_of(status, exit_code=code, is_own=is_own, app_handle=handle)


def _count_replicas(record: SlurmRecord) -> int:
    return sum(role.get("num_replicas", 1) for role in record.app.get("roles", ()))


def _observe(
    record: SlurmRecord, app_id: str, outcome: Outcome, replicas: Sequence[Replica] = ()
) -> Observation:
    """Returns the observation of a job, without its restarts and its first failure."""
    begun, last = _span(replicas)
    return Observation(
        app_id,
        record.name,
        local_time(record.submitted_at),
        record.cfg,
        record.app.get("metadata"),
        Whole.of(outcome.state, _reason(record, outcome)),
        replicas,
        started_at=local_time(_start(outcome, record, begun)),
        ended_at=local_time(_end(outcome, record, last)),
    )


def _start(outcome: Outcome, record: SlurmRecord, begun: float | None = None) -> float | None:
    """Returns the time of the first replica's start, else that of Slurm, which has whole seconds."""
    started = begun or outcome.started_at
    if begun and run_of(record.paths) == 1:  # the clock of a node may be behind
        started = max(begun, outcome.started_at or 0.0)
    if started is None:
        return None
    return max(started, record.submitted_at)


def _end(outcome: Outcome, record: SlurmRecord, last: float | None = None) -> float | None:
    """Returns the time of the end, not before the submission or the end of the last replica."""
    if outcome.ended_at is None:
        return last
    return max(outcome.ended_at, record.submitted_at, outcome.started_at or 0.0, last or 0.0)


def _replica(
    record: SlurmRecord, outcome: Outcome, role: Data, replica: int, service: bool, host: str
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


def running_host(record: SlurmRecord, role: str, replica: int) -> str:
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


def folder_of(app_id: str, role: str, replica: int) -> Path | None:
    """Returns the working directory of the newest attempt of a replica; None if it is not known.

    Raises:
        StateError: the job is unknown, or the replica does not exist.
    """
    record = find_record(app_id)
    if record is None:
        raise unknown_application("slurm", app_id)
    known = {each["name"]: list(range(each.get("num_replicas", 1))) for each in record.app.get("roles", ())}
    require_replicas(app_id, known, role, [replica])
    for _, attempt in reversed(record.paths.attempts(role, replica)):
        facts = node_attempts.read_facts(attempt / "start.json") or {}
        if facts.get("cwd"):
            return Path(facts["cwd"])
    return None


def _reason(record: SlurmRecord, outcome: Outcome) -> Reason:
    """Returns the reason for the state of a job: its time limit, if that has ended it, or that of Slurm."""
    reason = Reason(outcome.msg, CAUSES.get(outcome.word))
    if outcome.state is not AppState.FAILED:
        return reason
    if outcome.word == "TIMEOUT" or path_exists(record.paths.expired):
        with suppress(ValueError):
            rule = job_limits.rule_of(record.cfg)
            if rule.limit:
                return Reason(rule.reached(run_of(record.paths)), EndCause.TIME_LIMIT)
    return reason


def _reason_of(outcome: Outcome, paths: SlurmPaths, needed: Sequence[Replica]) -> str:
    """Returns the reason for the state of a job of which no replica is known to have failed first."""
    if outcome.word == "OUT_OF_MEMORY":  # all were killed: unknown for which of them
        ends = (replica.attempts[-1] for replica in needed if replica.attempts)
        return next((end.msg for end in ends if end.cause is EndCause.OUT_OF_MEMORY), outcome.msg)
    if outcome.state is AppState.UNKNOWN:
        return full_disk(paths.folder) or outcome.msg
    if outcome.msg or outcome.state is not AppState.FAILED:
        return outcome.msg
    return full_disk(paths.folder) or last_error_line(paths) or outcome.exit_message


_JOB_WIDE_CAUSES = (EndCause.TIME_LIMIT, EndCause.NODE_LOST)


def _only_host(role: int, queue: Sequence[JobFacts]) -> str:
    """Returns the node of a role that has only one; empty if it has several, or is unknown."""
    part = next((part for part in queue if part.part == role and part.nodes), None)
    hosts = []
    if part is not None:
        hosts = list(hosts_of(part.nodes))
    if len(hosts) == 1:
        return hosts[0]
    return ""


def _span(replicas: Sequence[Replica]) -> tuple[float | None, float | None]:
    """Returns the start of the first attempt and the end of the last one."""
    attempts = [attempt for replica in replicas for attempt in replica.attempts]
    begins = [a.started_at.timestamp() for a in attempts if a.started_at is not None]
    ends = [t.timestamp() for a in attempts if (t := a.ended_at or a.started_at) is not None]
    return min(begins, default=None), max(ends, default=None)
