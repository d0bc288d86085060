"""Asks for the end of a job."""

from __future__ import annotations

import os
import signal

from torchx import processes
from torchx.errors import StateError
from torchx.jobs import lock
from torchx.jobs.paths import JobPaths
from torchx.jobs.view import load


def request(paths: JobPaths, *, now: bool = False) -> None:
    """Asks a job's supervisor to end it; returns at once.

    The request lies on disk before the supervisor is woken, so that it is found also by one that has not
    come up yet.

    Args:
        paths: the job.
        now: kill, with no time to clean up.

    Raises:
        StateError: the request cannot be written.
    """
    try:
        descriptor = os.open(paths.cancel, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(
            f"the end of the job cannot be asked for at {paths.cancel}: {error.strerror}"
        ) from error
    try:
        os.write(descriptor, b"kill\n" if now else b"cancel\n")
    finally:
        os.close(descriptor)
    supervisor = load(paths).supervisor
    if supervisor is not None and lock.is_held(paths.lock):
        processes.send(supervisor, signal.SIGTERM)
