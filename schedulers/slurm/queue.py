"""Find jobs in the queue, the accounting and the records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from torchx.errors import AbsentError
from torchx.printable import joined
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.batch.marks import mark_of, token_of
from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import path_exists
from torchx.schedulers.shared.batch.record import BatchRecord, Records, own_token, parse_key
from torchx.schedulers.shared.owner import is_foreign, user_name
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.marked import minimal_record, record_of_marked
from torchx.schedulers.slurm.outcome import outcome_of, outcome_unlisted, outcome_without_slurm
from torchx.schedulers.slurm.parse import (
    ACCOUNT_FORMAT,
    JobFacts,
    by_job,
    check_not_part,
    queue_format,
    read_account,
    read_queue,
    separator,
)
from torchx.scheduling import pace
from torchx.scheduling.pace import ALL
from torchx.specs.status import is_terminal

_NOT_KNOWN = r"(?i)invalid job ?id"
MAX_IDS = 500
"""Maximum ids in a query to the accounting; above it, all jobs of the user are queried."""


class SlurmJob(NamedTuple):
    """A job of torchx.

    Attributes:
        app_id: id in handles: the job id, with ``@token`` if a newer job now has that id.
        record: the record of the job.
        queue: its facts from squeue.
        outcome: its state.
        lost: True if squeue lists another job with this id, which must not be signalled.
        owner: the owner, if not the caller; files of such a job are neither read nor written.
    """

    app_id: str
    record: BatchRecord
    queue: tuple[JobFacts, ...]
    outcome: Outcome
    lost: bool = False
    owner: str = ""

    @property
    def own_id(self) -> int:
        """The id by which srun and sstat know the job, also a task of an array."""
        return next((part.own_id for part in self.queue if not part.part and part.own_id), self.record.job_id)


def find(app_id: str, *, by_files: bool = False) -> SlurmJob | None:
    """Returns a job, or None if no job of torchx has this id.

    Args:
        app_id: the id of the job.
        by_files: if Slurm does not respond, use the files of the job, even if they show no end.

    Raises:
        StateError: Slurm does not respond, and the files of the job show no end.
    """
    number, _, token = app_id.partition("@")
    key = parse_key(number)
    if not key:
        check_not_part(app_id)
        return None
    records = Records("slurm")
    record = records.find(key, token)
    try:
        queue = (ANSWERS.about(key) or {}).get(key, [])
    except AbsentError:
        if record is None:
            raise
        queue = []
    except client.NoAnswerError:
        job = _without_slurm(app_id, record, by_files)
        if job is None:
            raise
        return job
    if record is None or not token:  # the id may now belong to a newer job, submitted elsewhere
        marked = _find_by_mark(queue, records)
        if marked is not None and token in ("", marked.token):
            record = marked
    if record is None:
        _check_not_task(app_id, queue)
        return _foreign_job(queue, token)
    newest = records.find(key) if token else None
    if newest is not None and newest.token != record.token:
        number = f"{number}@{record.token}"
    return _recorded_job(number, record, queue)


def _check_not_task(app_id: str, queue: Sequence[JobFacts]) -> None:
    """Checks that an id is not that of a task of a job that torchx has not submitted."""
    if queue and not any(token_of(part.comment) for part in queue):
        check_not_part(app_id)


def _without_slurm(app_id: str, record: BatchRecord | None, by_files: bool) -> SlurmJob | None:
    """Returns a job from its files; None if they show no end, unless they are to be used in any case."""
    if record is None:
        return None
    outcome = outcome_of(record, ())
    if outcome is None and by_files:
        outcome = outcome_without_slurm(record)
    if outcome is None:
        return None
    return SlurmJob(app_id, record, (), outcome)


def _recorded_job(app_id: str, record: BatchRecord, queue: Sequence[JobFacts]) -> SlurmJob:
    """Returns a job with a record, given the facts of squeue on its id."""
    own = tuple(part for part in queue if record.is_of(part.name, part.comment) and not is_foreign(part.user))
    outcome = outcome_of(record, own)
    if outcome is None:
        account = ACCOUNTS.about(record.full_id) or ()
        outcome = outcome_off_queue(record, account, queue)
    return SlurmJob(app_id, record, own, outcome, bool(queue) and not own)


def require_own(job: SlurmJob, verb: str) -> None:
    """Checks that a job belongs to the current user.

    Args:
        job: the job.
        verb: the operation in the past, for the error message: "cancelled".

    Raises:
        OwnershipError: it belongs to another user.
    """
    number = job.record.key
    hint = None
    if verb != "read":
        hint = f"an operator of the cluster can end it: scancel {number}"
    owner.require_own(f"job {number}", job.owner, verb, hint)


def find_record(app_id: str) -> BatchRecord | None:
    """Returns the record of a job, or None."""
    return Records("slurm").of_app(app_id)


def _find_by_mark(queue: Iterable[JobFacts], records: Records) -> BatchRecord | None:
    """Returns the record of a job of the caller by the mark in its comment, for jobs submitted elsewhere."""
    for part in queue:
        mark = mark_of(part.comment)
        if mark is not None and not is_foreign(part.user):
            known = records.find(part.key, mark[0])
            if known is not None or own_token(mark[0], part.task) in records.deleted_tokens():
                return known
            return record_of_marked(part, mark, True)
    return None


def _foreign_job(queue: Sequence[JobFacts], token: str) -> SlurmJob | None:
    """Returns a job of another user, from the facts of Slurm alone; reads no files."""
    mark = mark_of(queue[0].comment) if queue else None
    if mark is None or token not in ("", mark[0]) or not is_foreign(queue[0].user):
        return None
    outcome = outcome_of(None, queue)
    assert outcome is not None
    user = queue[0].user
    outcome = outcome._replace(msg=joined(outcome.msg, f"owned by {user}"))
    record = minimal_record(queue[0], mark[0], [], False)
    return SlurmJob(queue[0].key, record, tuple(queue), outcome, owner=user)


def _query(keys: Collection[str]) -> dict[str, dict[str, list[JobFacts]]]:
    """Returns the facts of squeue on a job, or those on all jobs of this user and others, by their keys."""
    if len(keys) == 1 and ALL not in keys:
        return dict.fromkeys(keys, _query_jobs(keys))
    recorded = Records("slurm").keys()
    jobs = _begin_listing(False)()
    others = {*keys} - {ALL, *recorded, *jobs}  # perhaps of other users
    if others:
        jobs.update(_query_jobs(others))
    return dict.fromkeys((ALL, *recorded, *jobs), jobs)


ANSWERS = pace.Answers(_query)
"""The answers that watches share."""


def _query_jobs(keys: Collection[str]) -> dict[str, list[JobFacts]]:
    """Returns the facts of squeue on jobs and tasks of arrays, by their keys.

    Uses the text output: older releases ignore filters for JSON and list the whole cluster.
    """
    between = separator()
    wanted = ",".join(keys)
    tasks = ["--array"] if "_" in wanted else []
    argv = ["squeue", "--noheader", "--states=all", f"--jobs={wanted}", f"--format={queue_format(between)}"]
    try:
        output = client.call([*argv, *tasks])
    except client.NoAnswerError:
        raise
    except client.ProgramError as error:
        if re.search(_NOT_KNOWN, error.output):
            return {}
        raise
    return by_job(read_queue(output, between))


def query_all_jobs(all_users: bool) -> Callable[[], dict[str, list[JobFacts]]]:
    """Starts a query of squeue for all jobs of this user, or of all users.

    Returns:
        A function that waits for the answer and returns the facts on each job. It must be called once.
    """
    if pace.is_sharing() and not all_users:
        jobs = ANSWERS.about(ALL) or {}
        return lambda: jobs
    return _begin_listing(all_users)


def _begin_listing(all_users: bool) -> Callable[[], dict[str, list[JobFacts]]]:
    """Starts a query; uses the text output, which squeue makes in a fraction of the time of its JSON."""
    user = user_name()
    filters = [] if all_users else [f"--user={user}"]
    between = separator()
    argv = ["squeue", "--noheader", "--states=all", "--array", f"--format={queue_format(between)}"]
    output = client.begin([*argv, *filters], timeout=client.LIST_TIMEOUT)

    def answer() -> dict[str, list[JobFacts]]:
        facts = read_queue(output(), between)
        return by_job(f for f in facts if all_users or not f.user or f.user == user)

    return answer


def query_accounting(records: Sequence[BatchRecord]) -> list[JobFacts]:
    """Returns the facts of sacct on jobs; none if the accounting is missing or does not respond."""
    between = separator()
    first = min(record.submitted_at for record in records)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(max(first - 60, 0)))
    argv = ["sacct", "--noheader", "--parsable2", f"--starttime={since}", "--allocations"]
    argv += [f"--format={ACCOUNT_FORMAT}", f"--delimiter={between}"]
    if len(records) <= MAX_IDS:
        argv.append("--jobs=" + ",".join(record.key for record in records))
    return read_account(client.answer(argv), between)


def _query_accounts(names: Collection[str]) -> dict[str, list[JobFacts]]:
    """Returns the facts of sacct on a job, or on all jobs of this user that need them.

    Args:
        names: the ids of jobs with their tokens, the keys of the answer.
    """
    records = [record for name in names if (record := find_record(name))]
    if len(names) > 1:
        jobs = ANSWERS.about(ALL) or {}
        records += [r for r in Records("slurm").all() if r.key not in jobs and outcome_of(r, ()) is None]
    if not records:
        return {}
    facts = by_job(query_accounting(records))
    return {record.full_id: facts.get(record.key, []) for record in records}


ACCOUNTS = pace.Answers(_query_accounts)
"""The facts of sacct that watches share."""


def outcome_off_queue(record: BatchRecord, account: Iterable[JobFacts], queue: Iterable[JobFacts]) -> Outcome:
    """Returns the state of a job that is not in the queue, from the accounting or else from its files.

    Accounting may lack the comment that marks a job, and two jobs with the same id may have the same name:
    facts with the submission time of another job in the queue are of that one.

    Args:
        record: the record of the job.
        account: the facts of sacct on its id.
        queue: the facts of squeue on its id.
    """
    others = {part.submitted for part in queue if not record.is_of(part.name, part.comment)} - {None}
    own = [part for part in account if record.is_of(part.name, part.comment) and not is_foreign(part.user)]
    facts = [part for part in own if part.submitted not in others]
    return outcome_of(record, (), facts) or outcome_unlisted(record)


def list_jobs(all_users: bool) -> list[SlurmJob]:
    """Returns all jobs of torchx, newest first: those with a record, and marked jobs in the queue.

    Raises:
        AbsentError: Slurm is not installed.
        StateError: Slurm does not respond.
    """
    records = Records("slurm")
    answer = query_all_jobs(all_users)
    known = {(record.key, record.token): record for record in records.all()}  # while squeue runs
    queue = answer()
    deleted = records.deleted_tokens()
    holders = _id_holders(known, queue, deleted)
    named = [
        (key if holders[key] == token else f"{key}@{token}", record) for (key, token), record in known.items()
    ]
    jobs = jobs_of(named, queue)
    for key, parts_ in queue.items():
        token = token_of(parts_[0].comment)
        if not token or (key, token) in known or own_token(token, parts_[0].task) in deleted:
            continue
        if is_foreign(parts_[0].user):
            job = _foreign_job(parts_, token)
            jobs += [job] if job is not None else []
            continue
        mark = mark_of(parts_[0].comment)
        assert mark is not None
        record = record_of_marked(parts_[0], mark, False)
        outcome = outcome_of(record, parts_)
        if outcome is not None and not (is_terminal(outcome.state) and _is_deleted(record)):
            jobs.append(SlurmJob(key, record, tuple(parts_), outcome))
    return sorted(
        jobs, key=lambda job: (job.record.submitted_at, job.record.job_id, job.record.task or 0), reverse=True
    )


def jobs_of(
    named: Iterable[tuple[str, BatchRecord]], queue: Mapping[str, Sequence[JobFacts]]
) -> list[SlurmJob]:
    """Returns jobs with their states; those that are not in the queue are looked up in the accounting.

    Args:
        named: their ids in handles, and their records.
        queue: the facts of squeue on all jobs of the user.
    """
    jobs: list[SlurmJob] = []
    unresolved: list[tuple[str, BatchRecord]] = []
    for app_id, record in named:
        parts = tuple(
            p for p in queue.get(record.key, ()) if record.is_of(p.name, p.comment) and not is_foreign(p.user)
        )
        outcome = outcome_of(record, parts)
        if outcome is None:
            unresolved.append((app_id, record))
        else:
            jobs.append(SlurmJob(app_id, record, parts, outcome))
    if unresolved:
        account = by_job(query_accounting([record for _, record in unresolved]))
        for app_id, record in unresolved:
            facts = account.get(record.key, ()), queue.get(record.key, ())
            jobs.append(SlurmJob(app_id, record, (), outcome_off_queue(record, *facts)))
    return jobs


def _is_deleted(record: BatchRecord) -> bool:
    """Returns True if no folder of an ended job exists: deleted from another state home."""
    return bool(record.folders) and not any(map(path_exists, record.folders))


def _id_holders(
    known: Mapping[tuple[str, str], BatchRecord], queue: Mapping[str, Sequence[JobFacts]], deleted: set[str]
) -> dict[str, str]:
    """Returns the token of the current job of each id: Slurm reuses ids after a reset."""
    newest: dict[str, BatchRecord] = {}
    for (key, _), record in known.items():
        if key not in newest or newest[key].submitted_at < record.submitted_at:
            newest[key] = record
    holders = {key: record.token for key, record in newest.items()}
    for key, parts in queue.items():
        token = token_of(parts[0].comment)
        if token and not is_foreign(parts[0].user) and own_token(token, parts[0].task) not in deleted:
            holders[key] = token
    return holders
