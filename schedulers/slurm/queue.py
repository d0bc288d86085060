"""Finds jobs: by their id in the queue, in the accounting, and among those on record."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchx.errors import AbsentError, StateError
from torchx.schedulers.shared.owner import user_name
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.outcome import Outcome, outcome_of, without_slurm
from torchx.schedulers.slurm.parse import (
    ACCOUNT_FORMAT,
    JobFacts,
    by_job,
    queue_format,
    read_account,
    read_json,
    read_queue,
    separator,
)
from torchx.schedulers.slurm.paths import SlurmPaths, distrusted
from torchx.schedulers.slurm.record import Records, SlurmRecord, folder_of, mark_of, read_record, roles_in
from torchx.specs.handles import PartOfJobException
from torchx.specs.status import is_terminal

_NOT_KNOWN = re.compile(r"invalid job ?id", re.IGNORECASE)
MOST_IDS = 500
"""Ids that one question about the accounting names at most; with more, it is about all of the user's."""


@dataclass(frozen=True)
class SlurmJob:
    """One job of torchx.

    Attributes:
        app_id: its id in handles: the number, with ``@token`` when a newer job has the number now.
        record: what was submitted.
        queue: what squeue tells of it.
        outcome: how it fares.
        lost: squeue tells of another job by its number: who signals that number signals the other one.
        owner: the user that it belongs to, if that is not the caller; no file of it is read or written.
    """

    app_id: str
    record: SlurmRecord
    queue: tuple[JobFacts, ...]
    outcome: Outcome
    lost: bool = False
    owner: str = ""


def find(app_id: str, *, by_files: bool = False) -> SlurmJob | None:
    """Returns a job, None when there is none of this id, or it is not one of torchx.

    Args:
        app_id: its id.
        by_files: what it has left itself is enough, where Slurm does not answer.

    Raises:
        StateError: Slurm does not answer, and the job has not told of its end itself.
    """
    number, _, token = app_id.partition("@")
    if not _is_id(number):
        _check_part(app_id)
        return None
    records = Records()
    record = records.find(int(number), token)
    try:
        queue = ask_queue(int(number))
    except AbsentError:
        if record is None:
            raise
        queue = []
    except client.NoAnswerError as error:
        left = None if record is None else outcome_of(record, ())
        if record is not None and left is None and not by_files:
            from torchx.schedulers.slurm.status import describe

            error.left = describe(record, app_id, without_slurm(record), ())
        if record is None or error.left is not None:
            raise
        return SlurmJob(app_id, record, (), left or without_slurm(record))
    own = [part for part in queue if not foreign(part)]
    if record is None or not token:  # the number may have gone to a newer job, submitted elsewhere
        marked = _of_mark(own, records)
        record = marked if marked is not None and token in ("", marked.token) else record
    if record is None:
        return _of_another(queue, token)
    mine = tuple(part for part in own if record.is_of(part))
    outcome = outcome_of(record, mine)
    if outcome is None:
        account = [part for part in ask_account([record]) if record.is_of(part) and not foreign(part)]
        outcome = outcome_of(record, (), account) or without_slurm(record)
    newest = records.find(int(number)) if token else None
    shown = number if newest is None or newest.token == record.token else f"{number}@{record.token}"
    return SlurmJob(shown, record, mine, outcome, bool(queue) and not mine)


def foreign(part: JobFacts) -> bool:
    """Returns True if a job belongs to another user."""
    return part.user not in ("", user_name())


def on_record(app_id: str) -> SlurmRecord | None:
    """Returns the record of a job; None when there is none."""
    number, _, token = app_id.partition("@")
    return Records().find(int(number), token) if _is_id(number) else None


_PART = re.compile(r"([0-9]{1,18})(\+[0-9]+|_[0-9]+|\.[a-z0-9+]+)")
_PARTS = {"+": "a part of the heterogeneous job", "_": "a task of the job array", ".": "a step of the job"}


def _is_id(number: str) -> bool:
    return number.isdecimal() and number.isascii() and len(number) <= 18


def _check_part(app_id: str) -> None:
    """Refuses an id of Slurm that is only of a part of a job.

    Raises:
        PartOfJobException: it is one.
    """
    if match := _PART.fullmatch(app_id):
        job = match[1]
        raise PartOfJobException(
            f"`{app_id}` is {_PARTS[match[2][0]]} {job}; an application is a whole job",
            hint=f"use the id of the job: slurm://torchx/{job}",
        )


def _of_mark(queue: Iterable[JobFacts], records: Records) -> SlurmRecord | None:
    """Returns the record of a job of the caller by the mark in its comment, wherever it was submitted."""
    for part in queue:
        mark = mark_of(part.comment)
        if mark is not None:
            known = records.find(part.job_id, mark[0])
            if known is not None or mark[0] in records.gone():
                return known
            return _marked(part, mark, True)
    return None


def _marked(part: JobFacts, mark: tuple[str, Path], roles: bool) -> SlurmRecord:
    """Returns the record of a job of the caller by its mark; its script may have made another job before."""
    token, first = mark
    folder = first
    why = distrusted(first, token)
    if not why:
        folder = folder_of(first, part.job_id)
        why = distrusted(folder, token)
    if why:
        damage = f"the folder that its comment names is not to be trusted: {why}"
        return replace(_bare(part, token, None, False), damage=damage)
    try:
        record = read_record(SlurmPaths(first).record, token, folder)
    except ValueError:
        return _bare(part, token, folder, roles)
    if record.job_id == part.job_id:
        return record
    return replace(record, job_id=part.job_id, submitted_at=part.submitted or record.submitted_at)


def _bare(part: JobFacts, token: str, folder: Path | None, roles: bool) -> SlurmRecord:
    """Returns what is known of a job without a record: one of another user, or one submitted by hand."""
    name = part.name.removesuffix(f"-{token}")
    return SlurmRecord(
        part.job_id, token, name, part.name, "torchx", str(folder or ""), part.submitted or time.time(),
        {"name": name, "roles": roles_in(folder) if roles and folder is not None else []},
    )  # fmt: skip


def _of_another(queue: Sequence[JobFacts], token: str) -> SlurmJob | None:
    """Returns a job of another user by the facts of Slurm alone: no file that it names is read."""
    mark = mark_of(queue[0].comment) if queue else None
    if mark is None or token not in ("", mark[0]) or not foreign(queue[0]):
        return None
    outcome = outcome_of(None, queue)
    assert outcome is not None
    owner = queue[0].user
    outcome = replace(outcome, msg="; ".join(text for text in (outcome.msg, f"of {owner}") if text))
    record = _bare(queue[0], mark[0], None, False)
    return SlurmJob(str(queue[0].job_id), record, tuple(queue), outcome, owner=owner)


def ask_queue(job_id: int) -> list[JobFacts]:
    """Returns what squeue tells of one job; nothing when it does not know it.

    Older releases disregard all filters for JSON and tell of the whole cluster: the plain form is asked for.
    """
    between = separator()
    argv = ["squeue", "--noheader", "--states=all", f"--jobs={job_id}", f"--format={queue_format(between)}"]
    try:
        said = client.call(argv)
    except client.NoAnswerError:
        raise
    except client.SlurmError as error:
        if _NOT_KNOWN.search(error.said):
            return []
        raise
    return by_job(read_queue(said, between)).get(job_id, [])


def ask_all(all_users: bool) -> dict[int, list[JobFacts]]:
    """Returns what squeue tells of all jobs of this user, or of all users, in one call."""
    user = user_name()
    whose = [] if all_users else [f"--user={user}"]
    facts = in_json(whose)
    if facts is not None:
        return by_job(f for f in facts if all_users or not f.user or f.user == user)
    between = separator()
    argv = ["squeue", "--noheader", "--states=all", f"--format={queue_format(between)}", *whose]
    return by_job(read_queue(client.call(argv, patience=client.QUICK), between))


def in_json(whose: list[str]) -> list[JobFacts] | None:
    """Returns what squeue tells as JSON; None where it has none, or in a shape not seen yet."""
    if (client.version() or (0, 0)) < (21, 8):
        return None
    try:
        return read_json(client.call(["squeue", "--json", "--states=all", *whose], patience=client.QUICK))
    except client.NoAnswerError:
        raise
    except (client.SlurmError, ValueError):
        return None


def ask_account(records: list[SlurmRecord]) -> list[JobFacts]:
    """Returns what sacct tells of jobs; nothing where there is no accounting, or it does not answer."""
    since = int(min((record.submitted_at for record in records), default=0.0)) - 60
    between = separator()
    argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--format={ACCOUNT_FORMAT}"]
    argv.append(f"--delimiter={between}")
    argv.append(f"--starttime={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(max(since, 0)))}")
    if len(records) <= MOST_IDS:
        argv.append("--jobs=" + ",".join(str(record.job_id) for record in records))
    try:
        return read_account(client.call(argv, patience=client.QUICK), between)
    except StateError:
        return []


def everything(all_users: bool) -> Iterator[SlurmJob]:
    """Yields all jobs of torchx, newest first: those on record, and those that the queue knows by their mark.

    Raises:
        AbsentError: this machine has no Slurm, and nothing is on record.
        StateError: Slurm does not answer.
    """
    records = Records()
    known = {record.end: record for record in records.all()}
    queue = ask_all(all_users)
    gone = records.gone()
    holders = _holders(known.values(), queue, gone)
    found: list[SlurmJob] = []
    open_ones: list[tuple[str, SlurmRecord]] = []
    on_record = {(record.job_id, record.token) for record in known.values()}
    for record in known.values():
        holds = holders[record.job_id] == record.token
        app_id = str(record.job_id) if holds else f"{record.job_id}@{record.token}"
        parts = tuple(p for p in queue.get(record.job_id, ()) if record.is_of(p) and not foreign(p))
        outcome = outcome_of(record, parts)
        if outcome is None:
            open_ones.append((app_id, record))
        else:
            found.append(SlurmJob(app_id, record, parts, outcome))
    if open_ones:
        account = by_job(ask_account([record for _, record in open_ones]))
        for app_id, record in open_ones:
            told = [part for part in account.get(record.job_id, ()) if record.is_of(part)]
            found.append(SlurmJob(app_id, record, (), outcome_of(record, (), told) or without_slurm(record)))
    for job_id, parts_ in queue.items():
        mark = mark_of(parts_[0].comment)
        if mark is None or (job_id, mark[0]) in on_record or mark[0] in gone:
            continue
        if foreign(parts_[0]):
            job = _of_another(parts_, mark[0])
            found += [job] if job is not None else []
            continue
        record = _marked(parts_[0], mark, False)
        outcome = outcome_of(record, parts_)
        if outcome is not None and not (is_terminal(outcome.state) and _is_deleted(record)):
            found.append(SlurmJob(str(job_id), record, tuple(parts_), outcome))
    found.sort(key=lambda job: (job.record.submitted_at, job.record.job_id), reverse=True)
    yield from found


def _is_deleted(record: SlurmRecord) -> bool:
    """Returns True if the folder of an ended job does not exist: it was deleted from another state home."""
    return bool(record.folder) and not record.paths.folder.exists()


def _holders(
    known: Iterable[SlurmRecord], queue: dict[int, list[JobFacts]], gone: set[str]
) -> dict[int, str]:
    """Returns the token of the job that has each number now: ids are used again after a reset."""
    newest: dict[int, SlurmRecord] = {}
    for record in known:
        if record.job_id not in newest or newest[record.job_id].submitted_at < record.submitted_at:
            newest[record.job_id] = record
    holders = {job_id: record.token for job_id, record in newest.items()}
    for job_id, parts in queue.items():
        mark = mark_of(parts[0].comment)
        if mark is not None and mark[0] not in gone and not foreign(parts[0]):
            holders[job_id] = mark[0]
    return holders
