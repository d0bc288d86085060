"""Puts jobs into the queue, and notifies the keeper of a state home."""

from __future__ import annotations

import contextlib
import os
import time

from torchx.errors import StateError
from torchx.jobs import ticket
from torchx.jobs.paths import Home, JobPaths
from torchx.jobs.ticket import Ticket
from torchx.lazy import lazy_imports
from torchx.machine import locks, processes
from torchx.supervisor import process

with lazy_imports:
    from torchx.queue import ends, keepers

MODULE = "torchx.queue.keeper"
ANSWERS_WITHIN = 15.0
"""Maximum seconds until the keeper answers; it may just end the processes of a job without a supervisor."""

TRIES = 10
"""Attempts to reach the keeper: one that has no job left may end at the same moment."""


def wake(home: Home, paths: JobPaths) -> None:
    """Notifies the keeper of a new or changed ticket; starts the keeper if necessary.

    Raises:
        StateError: the keeper does not start.
        OSError: its log cannot be written.
    """
    end, log = time.monotonic() + ANSWERS_WITHIN, home.queue / ".keeper.log"
    for attempt in range(TRIES):
        left = end - time.monotonic()
        if left <= 0:
            break
        connection = keepers.connect_own(home, left)
        if connection is None:
            process.start(MODULE, [str(home.path)], log)
            continue
        with connection, contextlib.suppress(OSError):
            connection.sendall(keepers.WAKE + paths.folder.name.encode() + b"\n")
            if connection.recv(16) == keepers.OK:
                return
        time.sleep(0.01 * attempt)
    raise StateError(f"the keeper of the queue does not answer, it may be stopped or busy ({log})")


def revive(home: Home, paths: JobPaths) -> None:
    """Finds a keeper for a waiting job without one, unless the machine was restarted since."""
    with contextlib.suppress(OSError, StateError):
        if Ticket.load(paths).is_of_this_boot:
            ticket.mark(home, paths)
            wake(home, paths)


def cancel(home: Home, paths: JobPaths) -> None:
    """Ends a waiting job whose request to end is written.

    Raises:
        StateError: its record is damaged, or the keeper does not answer.
        OSError: its end cannot be recorded.
    """
    lock = locks.acquire(paths.lock)
    if lock is None:  # by its keeper
        wake(home, paths)
        return
    try:
        ends.finish(home, paths, "CANCELLED", "")
    finally:
        os.close(lock)


def change(home: Home, paths: JobPaths, *, held: bool | None = None, place_at: float | None = None) -> None:
    """Changes the ticket of a waiting job, and wakes the keeper.

    A changed ticket is one of this boot of the machine: the job is released.

    Args:
        home: the state home.
        paths: the job.
        held: whether it is held (default: as before).
        place_at: the time that determines its place, seconds since the boot (default: as before).

    Raises:
        FileNotFoundError: it does not wait any more.
        StateError: the ticket is damaged, or the keeper does not start.
        OSError: the ticket cannot be written.
    """
    before = Ticket.load(paths)
    after = before._replace(
        held=before.held if held is None else held,
        place_at=before.place_at if place_at is None else place_at,
        boot_id=processes.boot_id(),
    )
    after.save(paths)
    ticket.mark(home, paths)
    wake(home, paths)
