"""The end of jobs whose supervisor died: their left-over processes are ended, their state is set."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
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

GIVE_UP_AFTER = 5.0
"""Seconds after the first KILL at which what still runs is left: another user's, or stuck in the kernel."""


def bury(
    view: JobView, paths: JobPaths, descendants: Callable[[], set[Process]] = lambda: set[Process]()
) -> None:
    """Ends what is left of a job and notes how it ended, on disk where there is room, and in the view.

    Args:
        view: the job as it is on record.
        paths: where that is.
        descendants: what this process knows besides to be of the job.
    """
    rebooted = bool(view.boot_id) and view.boot_id != processes.boot_id()
    left = set() if rebooted else end_left_overs(view, descendants)
    why = "the machine was restarted while it ran" if rebooted else "its supervisor was killed"
    lost: tuple[int, int] | None = None
    what: list[dict[str, Any]] = []
    for ordinal, replica in enumerate(view.replicas):
        if replica.attempts and replica.attempts[-1].ended_at is None:
            msg = f"{why}: nobody saw its end, and what it printed last may be missing"
            what.append({"e": "exit", "r": ordinal, "a": replica.current, "msg": msg})
            lost = lost or (ordinal, replica.current)
    if left:
        why += f"; {what_could_not_be_ended(left)}"
    state = "CANCELLED" if view.cancelling else "FAILED"
    first = (_failed_first(view) or lost) if state == "FAILED" else None
    what.append({"e": "end", "state": state, "msg": why, "first": first})
    clock = Clock(view.seen_at)
    now = clock.now()
    for event in what:
        event["t"] = now
        fold(view, event)
    with contextlib.suppress(OSError):  # a full or read-only disk: the next one who asks finds the same
        events = EventLog(paths.events, clock, paths.reserve)
        with contextlib.closing(events):
            for event in what:
                events.add(event.pop("e"), **event)
        paths.reserve.unlink(missing_ok=True)
        ended.write_success(view, LogPaths(Path(view.record.log_dir)))
        ended.remember(view, paths)


def what_could_not_be_ended(left: set[Process]) -> str:
    """Returns the words for processes that neither TERM nor KILL has ended."""
    pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda p: p.start)[:8])
    return f"still running, as they cannot be ended: pid {pids}{', …' if len(left) > 8 else ''}"


def end_left_overs(
    view: JobView, descendants: Callable[[], set[Process]] = lambda: set[Process]()
) -> set[Process]:
    """Ends what still runs of a job that nobody supervises any more, and returns what cannot be ended."""
    spared = _self_and_ancestors()

    known: set[Process] = set()

    def left_overs() -> set[Process]:
        known.update((_left_overs(view) | descendants()) - spared)
        return {process for process in known if processes.is_alive(process)}

    end = time.monotonic() + min(view.record.grace, LONGEST_GRACE)
    for process in sorted(left_overs(), key=lambda p: (p.start, p.pid)):  # supervisors within it first
        processes.send(process, signal.SIGTERM)
        processes.send(process, signal.SIGCONT)
    while left := left_overs():
        now = time.monotonic()
        if now > end + GIVE_UP_AFTER:
            return left
        if now > end:
            for process in left:
                processes.send(process, signal.SIGKILL)
        time.sleep(0.01)
    return set()


def _left_overs(view: JobView) -> set[Process]:
    """Returns the job's replicas that still run and their families.

    What has moved to another parent is known by the handle in its environment. What has taken that off as
    well is known to the job's guard alone: sessions of ended leaders may be someone else's by now.
    """
    leaders = [
        r.attempts[-1].process for r in view.replicas if r.attempts and r.attempts[-1].ended_at is None
    ]
    alive = [leader for leader in leaders if leader is not None and processes.is_alive(leader)]
    found = set(alive) | processes.family([p.pid for p in alive])
    # nothing that is older than the job is of it, whatever its environment says
    since = view.supervisor.start if view.supervisor is not None else 0
    marked = processes.marked(settings.TORCHX_JOB_ID, view.record.handle)
    return found | {process for process in marked if process.start >= since}


def _failed_first(view: JobView) -> tuple[int, int] | None:
    """Returns the replica that had failed before, and its attempt."""
    failed = [
        (replica.attempts[-1].ended_at or 0.0, ordinal, replica.current)
        for ordinal, replica in enumerate(view.replicas)
        if replica.attempts and replica.attempts[-1].state == "FAILED"
    ]
    return min(failed)[1:] if failed else None


def _self_and_ancestors() -> set[Process]:
    """Returns this process and those above it: who asks from inside a job is not ended by asking."""
    found = set()
    pid = os.getpid()
    while pid > 1 and (entry := processes.look_up(pid)) is not None:
        found.add(entry.process)
        pid = entry.parent
    return found
