"""Starts a job's supervisor: the submitting side."""

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
from torchx.jobs.recovery import end_left_overs
from torchx.jobs.removal import remove
from torchx.jobs.view import load
from torchx.machine import files, processes
from torchx.machine import locks as lock

READY_WITHIN = 30.0
"""Seconds that a supervisor may take to say that it is there; it takes some hundredths as a rule."""

UNDONE_WITHIN = 5.0
"""Seconds that a killed supervisor may take to be gone."""

RESERVE = 1 << 14
"""Bytes of the disk that are kept for events; enough to tell the end of some hundred replicas."""

LARGEST_COMPLAINT = 1 << 20
"""Bytes of what a supervisor prints itself."""

# -I -S: neither the caller's Python settings nor its site packages have a say in the supervisor, and it
# starts in half the time; the folder of this package goes last: it hides no standard module
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
    """Puts a job on record and starts its supervisor.

    Args:
        home: the state home.
        record: the job.
        held: descriptors that the supervisor is to hold as long as it lives, such as device leases.
        fill: called with the folder in which the record is made, to put more into it.

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
    made: list[Path] = []
    try:
        _make(making.folder, made)
        _make(logs.folder, made)
        liveness = lock.acquire(making.lock)
        if liveness is None:  # the folder is new: nobody else can know it
            raise StateError(f"the lock {making.lock} is held by someone else")
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
    """Makes a folder and notes it; one that is there already belongs to someone else.

    Raises:
        UsageError: it is there, so the same request is being submitted twice.
    """
    try:
        files.make_folder(folder, exist_ok=False)
    except FileExistsError as error:
        raise UsageError(
            f"{folder} is there already: a request is submitted once", hint="make a new dry-run for it"
        ) from error
    made.append(folder)


def _undo(paths: JobPaths) -> None:
    """Ends what a supervisor that has been killed may have started already."""
    if lock.wait_free(paths.lock, UNDONE_WITHIN):
        with contextlib.suppress(OSError, TorchxError):
            end_left_overs(load(paths))


def _start(paths: JobPaths, held: Sequence[int]) -> None:
    root = str(Path(torchx.__file__).resolve().parent.parent)
    ready, says_ready = os.pipe2(os.O_CLOEXEC)
    complaints = files.open_file(paths.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # -I hides it, and without it the same text may have other bytes there
    utf8 = f"utf8={sys.flags.utf8_mode}"
    args = [sys.executable, "-I", "-S", "-X", utf8, "-c", BOOTSTRAP, root, str(paths.folder), str(says_ready)]
    try:
        child = processes.spawn(args, stderr=complaints, pass_fds=[says_ready, *held])
    except OSError as error:
        os.close(ready)
        what = f"{error.filename}: " if error.filename else ""
        raise StateError(f"the supervisor cannot be started: {what}{error.strerror}") from error
    finally:
        os.close(says_ready)
        os.close(complaints)
    try:
        if not _answers(ready):
            raise StateError(f"the supervisor did not start: {_complaint(paths) or 'no answer'}")
    except BaseException:
        # all of its session; it is not reaped yet, so nobody else has this number
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        os.close(ready)
        # it has gone on in a child of its own at once, so that nothing is left for us to look after
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child.pid, 0)


def _complaint(paths: JobPaths) -> str:
    """Returns the last line that a supervisor printed before it ended; empty for none."""
    with contextlib.suppress(OSError):
        lines = (
            files.read_file(paths.supervisor_log, LARGEST_COMPLAINT).decode("utf-8", "replace").split("\n")
        )
        return next((line for line in reversed(lines) if line.strip()), "")
    return ""


def _answers(ready: int) -> bool:
    """Waits for the supervisor's word."""
    poll = select.poll()  # unlike select(), it takes any descriptor
    poll.register(ready, select.POLLIN)
    return bool(poll.poll(READY_WITHIN * 1000)) and os.read(ready, 16) == b"ready"
