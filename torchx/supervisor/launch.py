"""Starts a job's supervisor: the submitting side."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import torchx
from torchx import processes
from torchx.errors import StateError, UsageError
from torchx.jobs import lock
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.record import JobRecord

READY_WITHIN = 30.0
"""Seconds that a supervisor may take to say that it is there; it takes some hundredths as a rule."""

RESERVE = 1 << 14
"""Bytes of the disk that are kept for events; enough to tell the end of some hundred replicas."""

# -I -S: neither the caller's Python settings nor its site packages have a say in the supervisor, and it
# starts in half the time; the folder of this package goes last: it hides no standard module
BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torchx.supervisor.__main__ import main; main(sys.argv[1:])"
)


def launch(home: Home, record: JobRecord, held: Sequence[int] = ()) -> None:
    """Puts a job on record and starts its supervisor.

    Args:
        home: the state home.
        record: the job.
        held: descriptors that the supervisor is to hold as long as it lives, such as device leases.

    Raises:
        UsageError: the job is on record already.
        StateError: the record or the log tree cannot be written, or the supervisor cannot be started;
            nothing of the job is left.
    """
    paths = home.job(record.app_id)
    logs = LogPaths(Path(record.log_dir))
    if paths.folder.exists():
        raise UsageError(
            f"{record.app_id} is on record already: a request is submitted once",
            hint="make a new dry-run for it",
        )
    # made under another name, so that whoever lists jobs never sees one that nobody holds yet
    making = JobPaths(paths.folder.with_name(f".{paths.folder.name}"))
    own_logs = not logs.folder.exists()
    try:
        making.folder.mkdir(mode=0o700, parents=True)
        logs.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        liveness = lock.acquire(making.lock)
        if liveness is None:  # the folder is new: nobody else can know it
            raise StateError(f"the lock {making.lock} is held by someone else")
        try:
            record.save(making.record)
            making.reserve.write_bytes(bytes(RESERVE))
            making.folder.rename(paths.folder)
            _start(paths, [liveness, *held])
        finally:
            os.close(liveness)
    except BaseException as error:
        for folder in (making.folder, paths.folder, *([logs.folder] if own_logs else [])):
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            where = error.filename or paths.folder
            raise StateError(f"the job cannot be recorded at {where}: {error.strerror}") from error
        raise


def _start(paths: JobPaths, held: Sequence[int]) -> None:
    root = str(Path(torchx.__file__).resolve().parent.parent)
    ready, says_ready = os.pipe2(os.O_CLOEXEC)
    complaints = os.open(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        args = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, root, str(paths.folder), str(says_ready)]
        child = processes.spawn(args, stderr=complaints, pass_fds=[says_ready, *held])
    finally:
        os.close(says_ready)
        os.close(complaints)
    try:
        answered, _, _ = select.select([ready], [], [], READY_WITHIN)
        if not answered or os.read(ready, 16) != b"ready":
            processes.send(child, signal.SIGKILL)
            complaint = paths.supervisor_log.read_text(errors="replace").strip().splitlines()
            raise StateError(f"the supervisor did not start: {complaint[-1] if complaint else 'no answer'}")
    finally:
        os.close(ready)
