"""The end of jobs whose supervisor died: their left-over processes are ended, their state is set."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchx import settings
from torchx.jobs import ended, shape
from torchx.jobs.events import Clock, EventLog, read_events
from torchx.jobs.paths import JobPaths, LogPaths
from torchx.jobs.view import JobView, fold
from torchx.machine import marks as process_marks
from torchx.machine import processes
from torchx.machine.processes import Process

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
    why = "the machine was restarted while it ran" if rebooted else "its supervisor was killed"
    # before they are ended: then no process tells any more which replica it was
    what = [] if rebooted else _announced_that_run(view)
    for event in what:
        event["t"] = view.seen_at
        fold(view, event)
    left = set() if rebooted else end_left_overs(view, descendants)
    lost: tuple[int, int] | None = None
    for ordinal, replica in enumerate(view.replicas):
        number = replica.announced or replica.current
        if replica.announced:
            msg = f"{why} at the moment of this start: whether it ran is not known"
            what.append({"e": "not_started", "r": ordinal, "a": number, "code": None, "msg": msg})
        elif replica.attempts and replica.attempts[-1].ended_at is None:
            msg = f"{why}: nobody saw its end, and what it printed last may be missing"
            what.append({"e": "exit", "r": ordinal, "a": number, "msg": msg})
        else:
            continue
        lost = lost or (ordinal, number)
    if left:
        why += f"; {what_could_not_be_ended(left)}"
    state = "CANCELLED" if view.cancelling else "FAILED"
    first = (_failed_first(view) or lost) if state == "FAILED" else None
    what.append({"e": "end", "state": state, "msg": why, "first": first})
    clock = Clock(view.seen_at)
    now = clock.now()
    for event in what:
        if event["e"] != "start":  # those have been folded
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


def _announced_that_run(view: JobView) -> list[dict[str, Any]]:
    """Returns the starts of replicas that were announced and have a process, of which no pid is on record."""
    starts = []
    marked = _marked(view) if any(replica.announced for replica in view.replicas) else ()
    for ordinal, replica in enumerate(view.replicas):
        if replica.announced is not None:
            own = [process for process in marked if _is_of(process, f"{replica.role}/{replica.id}")]
            if own:
                first = min(own, key=lambda p: (p.start, p.pid))  # what it has started itself is younger
                facts = {"r": ordinal, "a": replica.announced, "pid": first.pid, "start": first.start}
                starts.append({"e": "start", **facts})
    return starts


def _is_of(process: Process, replica: str) -> bool:
    mark = f"{settings.TORCHX_REPLICA}={replica}".encode("utf-8", "surrogateescape")
    return mark in process_marks.environment_of(process)


def what_could_not_be_ended(left: set[Process]) -> str:
    """Returns the words for processes that neither TERM nor KILL has ended."""
    pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda p: p.start)[:8])
    return f"still running, as they cannot be ended: pid {pids}{', …' if len(left) > 8 else ''}"


def end_left_overs(
    view: JobView, descendants: Callable[[], set[Process]] = lambda: set[Process]()
) -> set[Process]:
    """Ends what still runs of a job that nobody supervises any more, and returns what cannot be ended."""
    return _end(lambda: _left_overs(view) | descendants(), min(view.record.grace, LONGEST_GRACE))


def end_unreadable(paths: JobPaths) -> set[Process]:
    """Ends what runs of a job whose record cannot be read, and returns what cannot be ended."""
    mark = process_marks.mark_of(paths.folder.name)
    return _end(lambda: {*process_marks.limit_marked(mark), *_supervisor_on_record(paths)}, LONGEST_GRACE)


def _supervisor_on_record(paths: JobPaths) -> set[Process]:
    """Returns the supervisor, where its events tell of one: a job of an older version carries no mark."""
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        for event in read_events(paths.events):
            if event["e"] == "supervisor" and event["boot"] == processes.boot_id():
                return {Process(shape.whole(event["pid"], "pid", 2), shape.whole(event["start"], "start"))}
    return set()


def _end(find: Callable[[], set[Process]], grace: float) -> set[Process]:
    """Ends processes and what they start meanwhile: TERM, then KILL; returns what cannot be ended."""
    spared = _self_and_ancestors()
    known: set[Process] = set()

    def left_overs() -> set[Process]:
        known.update(find() - spared)
        return {process for process in known if processes.is_alive(process)}

    end = time.monotonic() + grace
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

    What has moved to another parent is known by the handle in its environment; what has taken that off as
    well by its limits. Sessions of ended leaders tell nothing: they may be someone else's by now.
    """
    leaders = [
        r.attempts[-1].process for r in view.replicas if r.attempts and r.attempts[-1].ended_at is None
    ]
    alive = [leader for leader in leaders if leader is not None and processes.is_alive(leader)]
    return set(alive) | processes.family([p.pid for p in alive]) | _marked(view)


def _marked(view: JobView) -> set[Process]:
    """Returns the processes that carry a mark of the job."""
    # nothing that is older than the job is of it, whatever its environment says
    since = view.supervisor.start if view.supervisor is not None else 0
    marked = process_marks.marked(settings.TORCHX_JOB_ID, view.record.handle)
    marked += process_marks.limit_marked(process_marks.mark_of(view.record.app_id))
    return {process for process in marked if process.start >= since}


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
