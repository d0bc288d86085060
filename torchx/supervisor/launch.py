"""Record a job and start its supervisor; runs in the submitting process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torchx.errors import StateError, TorchxError, UsageError
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine import locks as lock
from torchx.supervisor import process

with lazy_imports:
    from torchx.jobs import recovery, removal, view

MODULE = "torchx.supervisor.__main__"

UNDONE_WITHIN = 5.0
"""Maximum seconds until a killed supervisor has ended."""

RESERVE = 1 << 14
"""Bytes of disk space reserved for events, enough to record the end of some hundred replicas."""


def launch(
    home: Home,
    record: JobRecord,
    held: Sequence[int] = (),
    fill: Callable[[Path], None] | None = None,
    *,
    supervise: bool = True,
) -> None:
    """Records a job and starts its supervisor; removes the job again if that fails.

    Args:
        home: the state home.
        record: the job.
        held: descriptors that the supervisor holds for its lifetime, such as device leases.
        fill: called with the temporary folder of the record, to add files to it.
        supervise: start the supervisor; otherwise the job waits, and `fill` has to write its ticket.

    Raises:
        UsageError: the job exists already.
        StateError: the record or the log tree cannot be written, or the supervisor cannot be started.
    """
    paths = home.job(record.app_id)
    with recorded(home, record, fill, _end_processes) as liveness:
        if supervise:
            process.start(MODULE, [str(paths.folder)], paths.supervisor_log, [liveness, *held])


@contextlib.contextmanager
def recorded(
    home: Home,
    record: JobRecord,
    fill: Callable[[Path], None] | None = None,
    undo: Callable[[JobPaths], None] | None = None,
) -> Iterator[int]:
    """Records a job, and holds its lock; removes the job again if the body fails.

    Args:
        home: the state home.
        record: the job.
        fill: called with the temporary folder of the record, to add files to it.
        undo: called before the record is removed.

    Yields:
        The descriptor of the lock, which its supervisor inherits.

    Raises:
        UsageError: the job exists already.
        StateError: the record or the log tree cannot be written.
    """
    paths = home.job(record.app_id)
    logs = LogPaths(Path(record.log_dir))
    if paths.folder.exists():
        raise UsageError(
            f"application {record.app_id} already exists; a dry-run can be submitted only once",
            hint="make a new dry-run",
            code="already_exists",
        )
    # written under a temporary name, so that listings never see a job without a supervisor
    making = JobPaths(paths.folder.with_name(f".{paths.folder.name}"))
    made: list[Path] = []
    try:
        _make(making.folder, made)
        if not record.engine:  # an engine keeps the logs of its containers
            _make(logs.folder, made)
        liveness = lock.acquire(making.lock)
        if liveness is None:  # unexpected: the folder is new
            raise StateError(f"the lock {making.lock} is held by another process")
        try:
            record.save(making.record)
            files.write_file(making.reserve, bytes(RESERVE))
            if fill is not None:
                fill(making.folder)
            making.folder.rename(paths.folder)
            made.append(paths.folder)
            yield liveness
        finally:
            os.close(liveness)
    except BaseException as error:
        if paths.folder in made and undo is not None:
            undo(paths)
        for folder in made:
            with contextlib.suppress(StateError):
                if folder == logs.folder:
                    removal.remove_logs(folder, home.logs)
                else:
                    removal.remove(folder)
        if isinstance(error, OSError):
            where = error.filename or paths.folder
            raise StateError(f"the job cannot be recorded at {where}: {error.strerror}") from error
        raise


def _make(folder: Path, made: list[Path]) -> None:
    """Creates a folder and appends it to `made`.

    Raises:
        UsageError: it exists, so the same request is being submitted twice.
    """
    try:
        files.make_folder(folder, exist_ok=False)
    except FileExistsError as error:
        raise UsageError(
            f"{folder} already exists; a dry-run can be submitted only once", hint="make a new dry-run"
        ) from error
    made.append(folder)


def _end_processes(paths: JobPaths) -> None:
    """Ends the processes that a killed supervisor may have started."""
    if lock.wait_free(paths.lock, UNDONE_WITHIN):
        with contextlib.suppress(OSError, TorchxError):
            recovery.end_remaining(view.load(paths))
