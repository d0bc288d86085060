"""Requests to end a job."""

from __future__ import annotations

import os
import signal

from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.view import load
from torchx.lazy import lazy_imports
from torchx.machine import files, processes
from torchx.machine import locks as lock

with lazy_imports:
    from torchx.queue import launch as waiting


LARGEST_REQUEST = 1 << 16
"""Maximum bytes of all requests to end a job."""


def request(paths: JobPaths, *, now: bool = False) -> None:
    """Requests that a job's supervisor end it; returns immediately.

    The request is written before the supervisor is signalled, so that a supervisor that is still starting
    reads it too. If it cannot be written, the signal alone cancels the job, with its grace period. A stopped
    supervisor is resumed.

    Args:
        paths: the job; does nothing if its record was removed.
        now: kill the job without a grace period.

    Raises:
        StateError: the request can neither be written nor signalled.
    """
    write_error = _write(paths, b"kill\n" if now else b"cancel\n")
    try:
        view = load(paths)
    except FileNotFoundError:
        return  # deleted in the meantime
    if view.supervisor is None and not view.has_ended and paths.is_waiting():
        waiting.cancel(Home(paths.folder.parent.parent), paths)
        return
    delivered = view.has_ended
    if lock.is_held(paths.lock):
        signalled = view.supervisor is not None and processes.send(view.supervisor, signal.SIGTERM)
        delivered = delivered or signalled
        for process in (view.supervisor, view.guard):
            if process is not None:
                processes.send(process, signal.SIGCONT)
    if write_error is not None and not delivered:
        raise StateError(
            f"the job cannot be ended: {paths.cancel} cannot be written: {write_error.strerror}"
        ) from write_error


def _write(paths: JobPaths, request: bytes) -> OSError | None:
    """Writes a request; returns the error if that failed."""
    try:
        descriptor = files.open_file(paths.cancel, files.APPEND)
    except OSError as error:
        return error
    try:
        os.write(descriptor, request)
    except OSError as error:
        return error
    finally:
        os.close(descriptor)
    return None
