"""Asks for the end of a job."""

from __future__ import annotations

import os
import signal

from torchx.errors import StateError
from torchx.jobs.paths import JobPaths
from torchx.jobs.view import load
from torchx.machine import files, processes
from torchx.machine import locks as lock


def request(paths: JobPaths, *, now: bool = False) -> None:
    """Asks a job's supervisor to end it; returns at once.

    The request lies on disk before the supervisor is woken, so that it is found also by one that has not
    come up yet. Where the disk takes no request, the signal alone asks for the end, and leaves time to
    clean up. A stopped supervisor is woken.

    Args:
        paths: the job; nothing happens when it is not on record any more.
        now: kill, with no time to clean up.

    Raises:
        StateError: the request cannot be written, and there is no supervisor that could be told.
    """
    refused = _write(paths, b"kill\n" if now else b"cancel\n")
    try:
        view = load(paths)
    except FileNotFoundError:
        return  # deleted at this very moment
    told = view.has_ended
    if lock.is_held(paths.lock):
        woken = view.supervisor is not None and processes.send(view.supervisor, signal.SIGTERM)
        told = told or woken
        for process in (view.supervisor, view.guard):
            if process is not None:
                processes.send(process, signal.SIGCONT)
    if refused is not None and not told:
        raise StateError(
            f"the end of the job cannot be asked for at {paths.cancel}: {refused.strerror}"
        ) from refused


def _write(paths: JobPaths, request: bytes) -> OSError | None:
    """Writes a request; returns why that could not be done."""
    try:
        descriptor = files.open_file(paths.cancel, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        return error
    try:
        os.write(descriptor, request)
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
    return None
