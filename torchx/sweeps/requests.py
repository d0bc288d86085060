"""Requests of commands to the conductor of a sweep: appended to a file, in order."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from torchx import json_shape
from torchx.errors import StateError
from torchx.json_limits import Object
from torchx.machine import files, locks
from torchx.machine.files import append_lines
from torchx.scheduling.pace import deadline
from torchx.sweeps import environment, launch, view
from torchx.sweeps.paths import SweepPaths, wake
from torchx.sweeps.progress import Progress, json_line

DROP = "drop"
"""The kind of a request that cancels some runs."""

HOLD, RELEASE = "hold", "release"
"""The kinds of requests that keep runs from starting, and end that."""

LARGEST = 1 << 28
"""Maximum bytes of the requests."""


def send(paths: SweepPaths, scheduler: str, *requests: Object, runs: Sequence[bytes] = ()) -> None:
    """Sends requests to the conductor of a sweep; starts one if none is alive.

    Args:
        paths: the files of the sweep.
        scheduler: the scheduler of its runs.
        requests: the requests.
        runs: the lines of runs to append to the plan, in the environment of this process.

    Raises:
        StateError: they cannot be written, and nothing is; or the conductor cannot be started.
    """
    try:
        # a conductor ends under this lock, so that none ends without having read them
        with locks.exclusive(paths.edit):
            size = paths.plan.stat().st_size
            if runs:
                environment.write(paths)
                append_lines(paths.plan, runs)
            try:
                append_lines(paths.requests, map(json_line, requests))
            except OSError:
                os.truncate(paths.plan, size)
                raise
        wake(paths)
    except OSError as error:
        raise StateError(f"{error.filename or paths.folder}: {error.strerror}") from error
    launch.start(paths, scheduler)


def has_unread(paths: SweepPaths, progress: Progress) -> bool:
    """Returns True if a command has sent a request that was not acted on."""
    return next(read(paths, progress.handled), None) is not None


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


def set_held(paths: SweepPaths, kind: str) -> None:
    """Keeps the runs of a sweep from starting, or ends that; returns when the conductor has acted.

    Args:
        paths: the files of the sweep.
        kind: :data:`HOLD` or :data:`RELEASE`.

    Raises:
        StateError: the request cannot be written, or the conductor cannot be started.
    """
    found = view.require(paths.folder.name)
    send(paths, found.header.scheduler, {"r": kind})
    await_effect(paths, lambda progress: progress.held == (kind == HOLD))


def await_effect(
    paths: SweepPaths, is_seen: Callable[[Progress], bool], timeout: float | None = None
) -> Progress:
    """Waits until a request has an effect, or the conductor has ended; returns the progress of the sweep.

    Args:
        paths: the files of the sweep.
        is_seen: returns True if the progress shows the effect.
        timeout: maximum seconds (default: no limit).

    Raises:
        StateError: the sweep does not exist any more.
    """
    end = deadline(timeout)
    while True:
        progress = view.require(paths.folder.name).progress
        if is_seen(progress) or not locks.is_held(paths.lock) or time.monotonic() > end:
            return progress
        time.sleep(0.02)


class Request(NamedTuple):
    """A request of a command.

    Attributes:
        kind: its kind; unknown ones are ignored.
        position: the position after it.
        runs: the numbers of the runs that it names.
        to: the maximum number of runs at the same time that it sets; None without a valid one.
    """

    kind: Any
    position: int
    runs: list[int]
    to: int | None


def read(paths: SweepPaths, start: int) -> Iterator[Request]:
    """Yields the requests after a position; skips damaged ones."""
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
            to = None
            with contextlib.suppress(TypeError, ValueError):
                to = json_shape.integer(request.get("to"), "to")
            yield Request(request.get("r"), position, json_shape.items_at(request, int, "runs"), to)
