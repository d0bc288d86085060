"""The files of a sweep in the state home."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Folder, Home, Inside, file_name, user_home
from torchx.machine import files
from torchx.sweeps import BACKEND as BACKEND

INDEX = ".identities"
"""The folder with the id of the sweep of each identity."""

_RUN = r"(.+?)-([0-9]{1,6})(?:\.[0-9]{1,4})?"


class SweepPaths(Folder):
    """The files of one sweep; its folder is private to the user."""

    plan = Inside("plan.jsonl")
    """The sweep and its runs, a line each; only appended to."""
    journal = Inside("journal.jsonl")
    """The starts and ends of runs, written by the conductor alone."""
    requests = Inside("requests.jsonl")
    """The requests of commands to the conductor, in order."""
    lock = Inside("lock")
    """The lock that the conductor holds while it is alive."""
    edit = Inside("edit")
    """The lock of a process that appends to the plan or the requests."""
    observing = Inside("observing")
    """The lock of a process that writes the journal of a sweep whose runs the engine starts."""
    wake = Inside("wake")
    """The pipe that wakes the conductor."""
    environment = Inside("environment.json")
    """The environment and the working directory of the runs."""
    log = Inside("conductor.log")
    """The error output of the conductor, normally empty."""
    delayed = Inside("delayed")
    """Exists if it is a single application that waits for others, see :mod:`torchx.sweeps.delayed`."""
    provenance = Inside("provenance")
    """The source that it was submitted from."""


def sweeps_folder() -> Path:
    """Returns the folder of all sweeps, which may not exist.

    Raises:
        StateError: the state home belongs to another user, or others may write to it.
    """
    return Home(user_home()).sweeps


def paths_of(app_id: str) -> SweepPaths:
    """Returns the files of a sweep, which may not exist."""
    return SweepPaths(sweeps_folder() / file_name(app_id))


def is_delayed(app_id: str) -> bool:
    """Returns True if a sweep of this id is a single application that waits for others, or waited."""
    try:
        return paths_of(app_id).delayed.exists()
    except (StateError, OSError):  # no state home
        return False


def known() -> list[str]:
    """Returns the ids of the sweeps in the state home, in no order."""
    try:
        names = os.listdir(sweeps_folder())  # noqa: PTH208  # names only
    except (OSError, StateError):
        return []
    return [name for name in names if not name.startswith(".")]


def run_id(sweep: str, number: int, attempt: int = 1) -> str:
    """Returns the id of the application of a run: that of the sweep, if it is a single application.

    >>> run_id("train-b4zt1k8s", 12), run_id("train-b4zt1k8s", 12, 2)
    ('train-b4zt1k8s-12', 'train-b4zt1k8s-12.2')
    """
    found = f"{sweep}-{number}"
    if is_delayed(sweep):
        found = sweep
    return found + (f".{attempt}" if attempt > 1 else "")


def sweep_of_run(app_id: str) -> tuple[str, int]:
    """Returns the sweep and the number that the id of a run would have; an empty name for other ids.

    >>> sweep_of_run("train-b4zt1k8s-12.2"), sweep_of_run("train-b4zt1k8s")
    (('train-b4zt1k8s', 12), ('', 0))
    """
    match = re.fullmatch(_RUN, app_id)
    if match:
        return (match[1], int(match[2]))
    return ("", 0)


def wake(paths: SweepPaths) -> None:
    """Wakes the conductor of a sweep, if it is alive."""
    with contextlib.suppress(OSError):
        descriptor = os.open(paths.wake, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if _is_own_pipe(descriptor):
                os.write(descriptor, b"w")
        finally:
            os.close(descriptor)


def open_wake(paths: SweepPaths) -> int:
    """Returns a descriptor of the pipe of :func:`wake`, which is created if it is missing.

    Raises:
        OSError: it cannot be created, or is not a pipe of this user.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(paths.wake, files.PRIVATE_FILE)
    # for writing too: reading then never ends, and opening does not block
    descriptor = os.open(paths.wake, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not _is_own_pipe(descriptor):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a pipe of this user", str(paths.wake))
    return descriptor


def _is_own_pipe(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISFIFO(status.st_mode) and status.st_uid == os.geteuid()
