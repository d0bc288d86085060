"""The end of jobs whose supervisor died: their left-over processes are ended, their state is set."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from torchx import processes, settings
from torchx.jobs import ended
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import JobPaths, LogPaths
from torchx.jobs.view import JobView, fold
from torchx.processes import Process

LONGEST_GRACE = 5.0
"""Seconds that the left-over processes of a dead supervisor get between TERM and KILL at most."""


def bury(view: JobView, paths: JobPaths) -> None:
    """Ends what is left of a job and notes how it ended, on disk where there is room, and in the view."""
    rebooted = bool(view.boot_id) and view.boot_id != processes.boot_id()
    if not rebooted:
        end_left_overs(view)
    lost: tuple[int, int] | None = None
    what: list[dict[str, Any]] = []
    for ordinal, replica in enumerate(view.replicas):
        if replica.attempts and replica.attempts[-1].ended_at is None:
            what.append({"e": "exit", "r": ordinal, "a": replica.current, "msg": "nobody saw its end"})
            lost = lost or (ordinal, replica.current)
    why = "the machine was restarted while it ran" if rebooted else "its supervisor was killed"
    state = "CANCELLED" if view.cancelling else "FAILED"
    what.append({"e": "end", "state": state, "msg": why, "first": lost if state == "FAILED" else None})
    clock = Clock()
    for event in what:
        fold(view, {"t": clock.now(), **event})
    with contextlib.suppress(OSError):  # a full or read-only disk: the next one who asks finds the same
        events = EventLog(paths.events, clock, paths.reserve)
        with contextlib.closing(events):
            for event in what:
                events.add(event.pop("e"), **event)
        paths.reserve.unlink(missing_ok=True)
        ended.write_success(view, LogPaths(Path(view.record.log_dir)))
        ended.remember(view, paths)


def end_left_overs(view: JobView) -> None:
    """Ends what still runs of a job that nobody supervises any more."""
    end = time.monotonic() + min(view.record.grace, LONGEST_GRACE)
    for process in _left_overs(view):
        processes.send(process, signal.SIGTERM)
    while left := _left_overs(view):
        if time.monotonic() > end:
            for process in left:
                processes.send(process, signal.SIGKILL)
        time.sleep(0.01)


def _left_overs(view: JobView) -> set[Process]:
    """Returns the job's replicas that still run and their families.

    What has moved to another parent and another session is known by the handle in its environment.
    """
    leaders = [
        r.attempts[-1].process for r in view.replicas if r.attempts and r.attempts[-1].ended_at is None
    ]
    alive = [leader for leader in leaders if leader is not None and processes.is_alive(leader)]
    gone = [leader.pid for leader in leaders if leader is not None and leader not in alive]
    found = set(alive) | processes.family([p.pid for p in alive]) | processes.left_behind(gone)
    found.update(processes.marked(settings.TORCHX_JOB_ID, view.record.handle))
    return found - _self_and_ancestors()


def _self_and_ancestors() -> set[Process]:
    """Returns this process and those above it: who asks from inside a job is not ended by asking."""
    found = set()
    pid = os.getpid()
    while pid > 1 and (entry := processes.look_up(pid)) is not None:
        found.add(entry.process)
        pid = entry.parent
    return found
