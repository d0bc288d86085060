"""Find jobs of Grid Engine: their records, the queue, the accounting, and their own files."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from torchx.errors import StateError
from torchx.exit_codes import signal_of
from torchx.schedulers.gridengine import commands
from torchx.schedulers.gridengine.parse import AGAIN, Account, JobFacts, read_accounts, read_queue, reasons_of
from torchx.schedulers.shared.batch.ends import FAILURES, SCRIPT_KILLED, why_no_folder
from torchx.schedulers.shared.batch.outcome import (
    Outcome,
    read_outcome,
    started_at,
    state_of_script,
    was_cancelled,
)
from torchx.schedulers.shared.batch.paths import path_exists
from torchx.schedulers.shared.batch.progress import attempts_of, read_script_end
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.owner import user_name
from torchx.scheduling import pace
from torchx.scheduling.pace import ALL
from torchx.specs.status import AppState, is_terminal

ENGINE = "gridengine"
GAP = 10.0
"""Seconds after submission in which Grid Engine may not list the job yet."""
LIMIT_ENFORCED, KILLED = 37, 100
"""The numbers of ``failed`` in the accounting of a job that Grid Engine, or a signal, has ended."""
NO_FOLDER = 73
"""The exit code of a script without a folder of the job that it can use."""


class GridEngineJob(NamedTuple):
    """A job of torchx.

    Attributes:
        app_id: id in handles: the job id, with ``@token`` if a newer job now has that id.
        record: the record of the job.
        facts: its facts from qstat; None if it is not in the queue.
        outcome: its state.
        is_lost: Grid Engine has assigned its id to another job, which must not be deleted.
    """

    app_id: str
    record: BatchRecord
    facts: JobFacts | None
    outcome: Outcome
    is_lost: bool = False


def find_record(app_id: str) -> BatchRecord | None:
    """Returns the record of a job, or None."""
    return Records(ENGINE).of_app(app_id)


def find(app_id: str, *, by_files: bool = False) -> GridEngineJob | None:
    """Returns a job, or None if no job of this state home has this id.

    Args:
        app_id: the id of the job.
        by_files: if Grid Engine does not respond, use the files of the job, even if they show no end.

    Raises:
        StateError: Grid Engine does not respond, and the files of the job show no end.
    """
    record = find_record(app_id)
    if record is None:
        return None
    if outcome := outcome_of_files(record):
        return GridEngineJob(app_id, record, None, outcome)
    try:
        queue = ANSWERS.about(record.key) or {}
    except commands.NoAnswerError:
        if not by_files:
            raise
        return GridEngineJob(app_id, record, None, outcome_without_engine(record))
    return _job(app_id, record, queue)


def list_jobs() -> list[GridEngineJob]:
    """Returns all jobs of this state home, newest first.

    Raises:
        AbsentError: Grid Engine is not installed.
        StateError: Grid Engine does not respond.
    """
    records = sorted(Records(ENGINE).all(), key=lambda record: record.submitted_at, reverse=True)
    if not records:
        return []
    queue = _query([ALL])[ALL]
    jobs: dict[str, GridEngineJob] = {}
    for record in records:
        app_id = record.key
        if app_id in jobs:  # Grid Engine has assigned the id again
            app_id = record.full_id
        jobs[app_id] = _job(app_id, record, queue)
    return list(jobs.values())


def has_ended(app_id: str) -> bool:
    """Returns True if a job has ended, or is unknown and not in the queue."""
    job = find(app_id)
    if job is None or is_terminal(job.outcome.state):
        return True
    return job.outcome.state is AppState.UNKNOWN and job.facts is None


def delete_from_queue(job: GridEngineJob) -> None:
    """Has Grid Engine end a job, which may have ended meanwhile.

    Raises:
        StateError: Grid Engine does not respond, or rejects it.
    """
    if job.is_lost:
        return
    argv = ["qdel", str(job.record.job_id)]
    if job.record.task is not None:
        argv += ["-t", str(job.record.task)]
    try:
        if job.facts is not None and job.facts.is_suspended:  # or its script could not end it
            commands.call(["qmod", "-usj", argv[1]])
        commands.call(argv)
    except commands.NoAnswerError:
        raise
    except commands.ProgramError as error:
        if "does not exist" not in error.output and "already in deletion" not in error.output:
            raise


def _job(app_id: str, record: BatchRecord, queue: Mapping[str, JobFacts]) -> GridEngineJob:
    facts = queue.get(record.key)
    is_lost = facts is not None and not record.is_of(facts.name, "")
    if is_lost:
        facts = None
    outcome = outcome_of_files(record)
    if outcome is None and facts is not None:
        outcome = outcome_of_queue(record, facts)
    if outcome is None and path_exists(record.paths.stopped):
        outcome = _stopped(record)
    if outcome is None:
        outcome = outcome_unlisted(record, account_of(record))
    return GridEngineJob(app_id, record, facts, outcome, is_lost)


def _query(keys: Collection[str]) -> dict[str, dict[str, JobFacts]]:
    """Returns the facts of qstat on all jobs of this user, for each key."""
    output = commands.call(["qstat", "-xml", "-g", "d", "-u", user_name()])
    jobs = {facts.key: facts for facts in read_queue(output)}
    return dict.fromkeys((ALL, *keys), jobs)


ANSWERS = pace.Answers(_query)
"""The answers that watches share."""


def outcome_of_files(record: BatchRecord) -> Outcome | None:
    """Returns the end of a job as its files show it, None without an end."""
    paths = record.paths
    if saved := read_outcome(paths):
        return saved
    if over := read_script_end(paths):
        state, msg = state_of_script(over, paths)
        times = record.submitted_at, started_at(paths), over.at
        return Outcome(state, msg, "", *times, over.code, over.proved)
    return None


def _stopped(record: BatchRecord) -> Outcome:
    """Returns the end of a job whose script was ended by its time limit, or by a command."""
    paths = record.paths
    times = record.submitted_at, started_at(paths), paths.stopped.lstat().st_mtime
    if path_exists(paths.expired) and not path_exists(paths.cancelled):
        return Outcome(AppState.FAILED, FAILURES["TIMEOUT"], "TIMEOUT", *times)
    return Outcome(AppState.CANCELLED, "cancelled", "CANCELLED", *times)


def outcome_of_queue(record: BatchRecord, facts: JobFacts) -> Outcome:
    """Returns the state of a job that qstat lists."""
    if facts.has_failed:
        return Outcome(AppState.PENDING, "in an error state: qmod -cj clears it", facts.state, facts.at)
    if facts.is_waiting:
        notes = []
        if attempts_of(record.paths):
            notes.append("queued again")
        if "h" in facts.state:
            notes.append("held: qrls releases it")
        return Outcome(AppState.PENDING, "; ".join(notes), facts.state, facts.at)
    if not facts.is_running:
        msg = f"Grid Engine reports {facts.state or 'no state'}: neither an end nor a known state"
        return Outcome(AppState.UNKNOWN, msg, "", record.submitted_at)
    if "d" in facts.state and path_exists(record.paths.stopped):
        return _stopped(record)
    msg = ""
    if facts.is_suspended:
        msg = "suspended"
    elif "d" in facts.state and not path_exists(record.paths.cancelled):
        msg = "being deleted by qdel"
    return Outcome(AppState.RUNNING, msg, facts.state, record.submitted_at, facts.at)


def with_reason(job: GridEngineJob) -> GridEngineJob:
    """Adds why a job waits to its state, by another query."""
    if job.facts is None or not (job.facts.is_waiting or job.facts.has_failed):
        return job
    try:
        reasons = reasons_of(commands.call(["qstat", "-j", str(job.record.job_id)]))
    except StateError:
        return job
    msg = "; ".join(filter(None, (job.outcome.msg, *reasons[-1:])))
    return job._replace(outcome=job.outcome._replace(msg=msg or "Grid Engine has not considered it yet"))


def account_of(record: BatchRecord) -> Account | None:
    """Returns the last run of a job in the accounting; None if that is missing, or seconds late."""
    try:
        output = commands.call(["qacct", "-j", str(record.job_id)])
    except StateError:
        return None
    runs = [run for run in read_accounts(output, record.task) if record.is_of(run.name, "")]
    if not runs or runs[-1].failed in AGAIN:
        return None
    return runs[-1]


def outcome_unlisted(record: BatchRecord, account: Account | None) -> Outcome:
    """Returns the state of a job that Grid Engine has answered not to know.

    It keeps no trace of a job that is deleted before its start.
    """
    if account is not None:
        return _outcome_of_account(record, account)
    outcome = outcome_without_engine(record)
    is_old = time.time() - record.submitted_at > GAP
    has_begun = record.damage or attempts_of(record.paths) or not record.paths.folder.is_dir()
    if outcome.state is AppState.UNKNOWN and is_old and not has_begun:
        return outcome._replace(state=AppState.CANCELLED, msg="cancelled before its start", word="")
    return outcome


def _outcome_of_account(record: BatchRecord, account: Account) -> Outcome:
    paths = record.paths
    times = record.submitted_at, account.started, account.ended
    if was_cancelled(paths, None):
        return Outcome(AppState.CANCELLED, "cancelled", "CANCELLED", *times)
    if account.failed == LIMIT_ENFORCED:
        return Outcome(AppState.FAILED, FAILURES["TIMEOUT"], "TIMEOUT", *times)
    if account.failed == KILLED:
        msg = f"{FAILURES[SCRIPT_KILLED]} by {signal_of(account.exit_code) or 'a signal'}"
        return Outcome(AppState.FAILED, msg, SCRIPT_KILLED, *times, account.exit_code)
    if account.failed:
        msg = f"{FAILURES['LAUNCH_FAILED']}: {account.text}"
        return Outcome(AppState.FAILED, msg, "LAUNCH_FAILED", *times)
    if account.exit_code == NO_FOLDER and not attempts_of(paths):
        return Outcome(
            AppState.FAILED, why_no_folder(record.folders, "its host"), "FAILED", *times, NO_FOLDER
        )
    state = AppState.SUCCEEDED
    if account.exit_code:
        state = AppState.FAILED
    return Outcome(state, "", "", *times, account.exit_code)


def outcome_without_engine(record: BatchRecord) -> Outcome:
    """Returns the state of a job from its files alone, which show no end."""
    times = record.submitted_at, started_at(record.paths)
    if record.damage:
        return Outcome(AppState.UNKNOWN, record.damage, "", *times)
    if path_exists(record.paths.cancelled):
        return Outcome(AppState.CANCELLED, "cancelled", "CANCELLED", *times)
    if time.time() - record.submitted_at < GAP:
        return Outcome(AppState.SUBMITTED, "not yet listed by Grid Engine", "", *times)
    return Outcome(AppState.UNKNOWN, "Grid Engine no longer lists it, and its files show no end", "", *times)
