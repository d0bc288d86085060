"""Requests of commands to the conductor of a sweep: appended to a file, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from torchx.errors import StateError
from torchx.json_limits import Object
from torchx.machine import files, locks
from torchx.sweeps import launch, view
from torchx.sweeps.paths import SweepPaths, wake
from torchx.sweeps.plan import append_lines

LARGEST = 1 << 28
"""Maximum bytes of the requests."""


def send(
    paths: SweepPaths, scheduler: str, *requests: Object, also: Callable[[], None] | None = None
) -> None:
    """Sends requests to the conductor of a sweep; starts one if none is alive.

    Args:
        paths: the files of the sweep.
        scheduler: the scheduler of its runs.
        requests: the requests.
        also: called first, under the same lock.

    Raises:
        StateError: they cannot be written, or the conductor cannot be started.
    """
    try:
        # a conductor ends under this lock, so that none ends without having read them
        with locks.exclusive(paths.edit):
            if also is not None:
                also()
            append_lines(paths.requests, [json.dumps(request).encode() + b"\n" for request in requests])
        wake(paths)
    except OSError as error:
        raise StateError(f"{error.filename or paths.folder}: {error.strerror}") from error
    launch.start(paths, scheduler)


def end(paths: SweepPaths, *, now: bool = False) -> None:
    """Cancels a sweep that has not ended.

    Args:
        paths: the files of the sweep.
        now: kill the runs, without a grace period.

    Raises:
        StateError: the request cannot be written, or the conductor cannot be started.
    """
    found = view.find(paths)
    if found is not None and not found.has_ended:
        send(paths, found.header.scheduler, {"r": "kill" if now else "cancel"})


def read(paths: SweepPaths, start: int) -> Iterator[tuple[Object, int]]:
    """Yields the requests after a position, each with the position after it; skips damaged ones."""
    try:
        data = files.read_file(paths.requests, LARGEST)
    except OSError:
        return
    position = start
    for line in data[start:].splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        position += len(line)
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(request, dict):
            yield request, position
