"""Record a job and start its supervisor; runs in the submitting process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torchx
from torchx.errors import StateError, TorchxError, UsageError
from torchx.jobs.paths import Home, JobPaths, LogPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.recovery import end_remaining
from torchx.jobs.removal import remove
from torchx.jobs.view import load
from torchx.machine import files, processes
from torchx.machine import locks as lock

READY_WITHIN = 30.0
"""Maximum seconds until a supervisor reports ready; it usually takes some hundredths."""

UNDONE_WITHIN = 5.0
"""Maximum seconds until a killed supervisor has ended."""

RESERVE = 1 << 14
"""Bytes of disk space reserved for events, enough to record the end of some hundred replicas."""

LARGEST_ERROR_LOG = 1 << 20
"""Maximum bytes to read of a supervisor's error output."""

# -I -S: the caller's Python settings and site packages do not affect the supervisor, and it starts in half
# the time; the folder of this package comes last, so that it hides no standard module
BOOTSTRAP = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from torchx.supervisor.__main__ import main; main(sys.argv[1:])"
)


def launch(
    home: Home,
    record: JobRecord,
    held: Sequence[int] = (),
    fill: Callable[[Path], None] | None = None,
) -> None:
    """Records a job and starts its supervisor; removes the job again if that fails.

    Args:
        home: the state home.
        record: the job.
        held: descriptors that the supervisor holds for its lifetime, such as device leases.
        fill: called with the temporary folder of the record, to add files to it.

    Raises:
        UsageError: the job exists already.
        StateError: the record or the log tree cannot be written, or the supervisor cannot be started.
    """
    paths = home.job(record.app_id)
    logs = LogPaths(Path(record.log_dir))
    if paths.folder.exists():
        raise UsageError(
            f"application {record.app_id} already exists; a dry-run can be submitted only once",
            hint="make a new dry-run",
        )
    # written under a temporary name, so that listings never see a job without a supervisor
    making = JobPaths(paths.folder.with_name(f".{paths.folder.name}"))
    made: list[Path] = []
    try:
        _make(making.folder, made)
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
            _start(paths, [liveness, *held])
        finally:
            os.close(liveness)
    except BaseException as error:
        if paths.folder in made:
            _undo(paths)
        for folder in made:
            with contextlib.suppress(StateError):
                remove(folder)
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


def _undo(paths: JobPaths) -> None:
    """Ends the processes that a killed supervisor may have started."""
    if lock.wait_free(paths.lock, UNDONE_WITHIN):
        with contextlib.suppress(OSError, TorchxError):
            end_remaining(load(paths))


def _start(paths: JobPaths, held: Sequence[int]) -> None:
    root = str(Path(torchx.__file__).resolve().parent.parent)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    error_log = files.open_file(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # -I ignores PYTHONUTF8, and both processes must encode paths the same way
    utf8 = f"utf8={sys.flags.utf8_mode}"
    args = [sys.executable, "-I", "-S", "-X", utf8, "-c", BOOTSTRAP, root, str(paths.folder), str(writer)]
    try:
        child = processes.spawn(args, stderr=error_log, pass_fds=[writer, *held])
    except OSError as error:
        os.close(reader)
        file = f"{error.filename}: " if error.filename else ""
        raise StateError(f"the supervisor cannot be started: {file}{error.strerror}") from error
    finally:
        os.close(writer)
        os.close(error_log)
    try:
        if not _is_ready(reader):
            raise StateError(f"the supervisor did not start: {_last_error(paths) or 'no answer'}")
    except BaseException:
        # its whole session; it is not reaped yet, so its pid cannot have been reused
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        # it continues in its own child process, so this one ends immediately
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, 0)


def _last_error(paths: JobPaths) -> str:
    """Returns the last line of a supervisor's error output, or an empty string."""
    with contextlib.suppress(OSError):
        lines = (
            files.read_file(paths.supervisor_log, LARGEST_ERROR_LOG).decode("utf-8", "replace").split("\n")
        )
        return next((line for line in reversed(lines) if line.strip()), "")
    return ""


def _is_ready(reader: int) -> bool:
    """Waits until the supervisor reports ready; returns False if it ends or times out."""
    poll = select.poll()  # unlike select(), it accepts any descriptor
    poll.register(reader, select.POLLIN)
    return bool(poll.poll(READY_WITHIN * 1000)) and os.read(reader, 16) == b"ready"
