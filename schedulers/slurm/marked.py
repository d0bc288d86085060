"""Records of Slurm jobs that are found only by the mark in their comment: submitted elsewhere, or by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchx.schedulers.shared.batch.marks import Mark
from torchx.schedulers.shared.batch.paths import (
    BatchPaths,
    distrust_reason,
    folder_of,
    path_exists,
    roles_in,
    task_folder,
)
from torchx.schedulers.shared.batch.record import BatchRecord, read_record
from torchx.schedulers.slurm.parse import JobFacts


def record_of_marked(part: JobFacts, mark: Mark, roles: bool) -> BatchRecord:
    """Returns the record of a job of the caller by its mark; its script may be shared with an earlier job."""
    token, folders = mark.token, []
    for first in (mark.folder, mark.fallback):
        if first is None:
            continue
        folder, why = first, distrust_reason(first, token)
        if not why:
            if part.task is None:
                folder = folder_of(first, part.job_id)
            else:
                folder = task_folder(first, part.task)
            why = distrust_reason(folder, token)
        if why:
            damage = f"the folder in its comment is not trusted: {why}"
            return replace(minimal_record(part, token, [], False), damage=damage)
        folders.append(folder)
    holders = [mark.folder, mark.fallback] if part.task is None else folders
    copies = [BatchPaths(holder).record for holder in holders if holder is not None]
    if len(copies) > 1 and not path_exists(copies[0]):  # on a machine that does not share the first folder
        copies.reverse()
    try:
        record = read_record(copies[0], token, *folders)
    except ValueError:
        return minimal_record(part, token, folders, roles)
    if record.key == part.key:
        return record
    at = part.submitted or record.submitted_at
    return replace(record, job_id=part.job_id, task=part.task, submitted_at=at)


def minimal_record(part: JobFacts, token: str, folders: Sequence[Path], roles: bool) -> BatchRecord:
    """Returns a record for a job without one: of another user, or submitted by hand."""
    name = part.name.removesuffix(f"-{token}")
    folder, fallback = [*map(str, folders), "", ""][:2]
    record = BatchRecord(
        part.job_id,
        token,
        name,
        part.name,
        "torchx",
        folder,
        part.submitted or time.time(),
        {"name": name},
        task=part.task,
        fallback=fallback,
    )
    found = []
    if roles and folders:
        found = roles_in(record.paths.folder)
    return replace(record, app={"name": name, "roles": found})
