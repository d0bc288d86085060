"""The folders of a batch job: created at its submission, marked, removed."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from torchx.errors import StateError, UsageError
from torchx.jobs.paths import user_home
from torchx.machine import files, trees
from torchx.schedulers.shared.batch.paths import BatchPaths, distrust_reason, read_own, tasks_in, write
from torchx.schedulers.shared.batch.record import BatchRecord, Records
from torchx.schedulers.shared.batch.request import BatchRequest
from torchx.scheduling.pace import pause_after

FIRST_PAUSE = 0.1
"""Seconds between the first two checks whether a deleted job has ended."""
DELETE_TIMEOUT = 120.0
"""Seconds to wait for a deleted job to end."""


def write_files(request: BatchRequest, folder: Path, created: list[Path]) -> None:
    """Creates a folder of a job, with its script and the files that this reads.

    Args:
        request: the job.
        folder: one of its folders.
        created: gets the folder.

    Raises:
        UsageError: the request was already submitted.
        StateError: the folder cannot be created.
    """
    first = not created  # the fallback need not be on the disk before the submission
    try:
        files.make_folder(folder.parent)
        folder.mkdir(mode=0o700)
        created.append(folder)
        write(BatchPaths(folder).script, request.script, sync=first)
        for name, text in request.files.items():
            files.make_folder((folder / name).parent)
            write(folder / name, text, sync=first)
    except FileExistsError:
        raise UsageError(f"request already submitted as {request.name}", hint="create a new one") from None
    except OSError as error:
        raise no_folder(folder, error) from error


def remove(folders: Iterable[Path]) -> None:
    """Removes folders of a job that was not submitted."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def no_folder(folder: Path, error: OSError) -> StateError:
    """Returns the error for a folder of a job that cannot be created."""
    return StateError(
        f"cannot create the folder of the job: {folder}: {error.strerror}",
        hint="set -cfg job_dir=… to another folder shared with all nodes",
    )


def remove_folders(record: BatchRecord) -> None:
    """Removes the folders of a job.

    Raises:
        StateError: a folder is not trusted, belongs to another job, or cannot be removed.
    """
    for folder in record.folders or _folders_of_token(record):
        why = distrust_reason(folder, record.token)
        holder = (read_own(BatchPaths(folder).id) or b"").strip()
        if not why and holder not in (b"", record.key.encode()):
            why = "it belongs to another job"
        if why:
            raise StateError(f"folder of job {record.key} not removed: {folder}: {why}")
        for _ in range(20):  # a node may still be writing to it
            with contextlib.suppress(OSError):
                trees.remove(folder)
            if not folder.exists():
                break
            time.sleep(0.1)
        else:
            raise StateError(f"cannot remove the folder of job {record.key}: {folder}")
        if record.task is not None:
            _remove_array(folder, record)


def _remove_array(folder: Path, record: BatchRecord) -> None:
    """Removes the folder of a job array after that of its last task."""
    array = folder.with_name(folder.name.removesuffix(f"-{record.task}"))
    if array != folder and not distrust_reason(array, record.token) and not any(tasks_in(array)):
        with contextlib.suppress(OSError):
            trees.remove(array)


def _folders_of_token(record: BatchRecord) -> list[Path]:
    """Returns the trusted folders in the state home whose names contain the token of a job."""
    paths = (user_home() / record.engine / "jobs").glob(f"*{record.token}*")
    return [path for path in paths if not distrust_reason(path, record.token)]


def mark_cancelled(record: BatchRecord, *, sync: bool = True) -> None:
    """Records that a job was cancelled, in its folders: its script may not have chosen one yet.

    Args:
        record: the job.
        sync: wait until the mark is on the disk.
    """
    for folder in record.folders:
        if not distrust_reason(folder, record.token):
            with contextlib.suppress(OSError):
                write(BatchPaths(folder).cancelled, "", sync=sync)


def mark_killed(record: BatchRecord) -> None:
    """Records that a job is not given time to end, for its script."""
    for folder in record.folders:
        if not distrust_reason(folder, record.token):
            with contextlib.suppress(OSError):
                write(folder / "killed", "")


def wait_until_ended(key: str, has_ended: Callable[[], bool]) -> None:
    """Waits for the end of a job that is to be deleted.

    Args:
        key: the id of the job.
        has_ended: returns True once it has ended.

    Raises:
        StateError: it has not ended in time.
    """
    begun = time.monotonic()
    while not has_ended():
        waited = time.monotonic() - begun
        if waited > DELETE_TIMEOUT:
            raise StateError(f"job {key} has not ended after {DELETE_TIMEOUT:.0f} s", hint="try again later")
        time.sleep(pause_after(waited, first=FIRST_PAUSE))


def keep_submitted(
    record: BatchRecord, cancel: Sequence[str], call: Callable[[Sequence[str]], object]
) -> None:
    """Records a job that was submitted now, or cancels it if that fails.

    Args:
        record: the job.
        cancel: the command line that cancels it.
        call: runs a program of the engine.

    Raises:
        StateError: it can be neither recorded nor cancelled.
    """
    try:
        write(record.paths.id, str(record.job_id))
        Records(record.engine).add(record)
    except BaseException as error:
        try:
            call(cancel)
        except StateError as failed:
            raise StateError(
                f"job {record.job_id} was submitted, but it could be neither recorded ({error}) "
                f"nor cancelled ({failed.message})",
                hint=f"to cancel it: {' '.join(cancel)}",
            ) from error
        raise
