"""Recovery of jobs whose supervisor died: ends their remaining processes and records their end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from torchx import settings
from torchx.end_causes import EndCause
from torchx.jobs import ended
from torchx.jobs.events import Clock, EventLog, read_events
from torchx.jobs.paths import JobPaths
from torchx.jobs.view import JobView, fold, process_of
from torchx.json_limits import Object
from torchx.machine import marks as process_marks
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.printable import joined

LONGEST_GRACE = 5.0
"""Maximum seconds between TERM and KILL for the remaining processes of a dead supervisor."""

GIVE_UP_AFTER = 5.0
"""Seconds after the first KILL before giving up on a process: another user's, or stuck in the kernel."""


def finalize_orphaned_job(
    view: JobView, paths: JobPaths, descendants: Callable[[], set[Process]] = lambda: set[Process]()
) -> None:
    """Ends the remaining processes of a job; records its end, on disk if possible, and in the view.

    Args:
        view: the recorded state of the job.
        paths: its record.
        descendants: returns further processes of the job that the caller knows of.
    """
    # before they are ended: afterwards their environments cannot be read
    starts = _fold_unrecorded_starts(view)
    if _is_rebooted(view):
        left = set()
    else:
        left = end_remaining(view, descendants)
    clock = Clock(view.seen_at, view.clock_step)
    events = starts + _fold_end(view, left, clock.now())
    with contextlib.suppress(OSError):  # a full or read-only disk: the next call repeats this
        log = EventLog(paths.events, clock, paths.reserve)
        with contextlib.closing(log):
            for event in events:
                log.add(event.pop("e"), **event)
        ended.finish(view, paths)


def presume_end(view: JobView) -> None:
    """Changes the view of an orphaned job to the end that :func:`finalize_orphaned_job` will record.

    Changes nothing else; the job counts as ended at its last event.
    """
    _fold_unrecorded_starts(view)
    _fold_end(view, set(), view.seen_at)


def _is_rebooted(view: JobView) -> bool:
    return bool(view.boot_id) and view.boot_id != processes.boot_id()


def _fold_unrecorded_starts(view: JobView) -> list[Object]:
    """Applies the starts of processes without a recorded pid, and returns their events."""
    events = [] if _is_rebooted(view) else _unrecorded_starts(view)
    for event in events:
        event["t"] = view.seen_at
        fold(view, event)
    return events


def _fold_end(view: JobView, left: set[Process], now: float) -> list[Object]:
    """Applies the end of an orphaned job, and returns its events.

    Args:
        view: the state of the job.
        left: its processes that cannot be ended.
        now: the time of the end.
    """
    why, cause = "its supervisor was killed", EndCause.SUPERVISOR_LOST
    if _is_rebooted(view):
        why, cause = "the machine was restarted while it ran", EndCause.NODE_LOST
    events: list[Object] = []
    first = _failed_first(view)
    for ordinal, replica in enumerate(view.replicas):
        if replica.announced:
            msg = f"{why} during this start: it is not known whether the replica ran"
            events.append(
                {
                    "e": "not_started",
                    "r": ordinal,
                    "a": replica.announced,
                    "code": None,
                    "msg": msg,
                    "cause": cause,
                }
            )
        elif replica.attempts and replica.attempts[-1].ended_at is None:
            msg = f"{why}: its exit code is unknown, and its last output may be missing"
            events.append({"e": "exit", "r": ordinal, "a": replica.current, "msg": msg, "cause": cause})
    for event in events:
        event["t"] = now
        fold(view, event)
    state, first = "FAILED", first or _failed_first(view)
    if view.cancelling:
        state, first = "CANCELLED", None
    presumed: Object = {"state": state, "msg": why, "first": first, "cause": cause}
    for end in filter(None, (view.over, presumed)):  # the second one, if the first is damaged
        event = {**end, "e": "end", "t": now}
        if left:
            event["msg"] = joined(end.get("msg"), describe_survivors(left))
        if fold(view, event):
            return [*events, event]
    return events


def _unrecorded_starts(view: JobView) -> list[Object]:
    """Returns start events for announced replicas that have a process without a recorded pid."""
    starts = []
    marked = _marked(view) if any(replica.announced for replica in view.replicas) else ()
    for ordinal, replica in enumerate(view.replicas):
        if replica.announced is not None:
            own = [process for process in marked if _is_of(process, f"{replica.role}/{replica.id}")]
            if own:
                first = min(own, key=lambda p: (p.start, p.pid))  # its child processes are younger
                facts = {"r": ordinal, "a": replica.announced, "pid": first.pid, "start": first.start}
                starts.append({"e": "start", **facts})
    return starts


def _is_of(process: Process, replica: str) -> bool:
    mark = f"{settings.TORCHX_REPLICA}={replica}".encode("utf-8", "surrogateescape")
    return mark in process_marks.environment_of(process)


def describe_survivors(left: set[Process]) -> str:
    """Returns the message about processes that neither TERM nor KILL has ended."""
    pids = ", ".join(str(process.pid) for process in sorted(left, key=lambda p: p.start)[:8])
    return f"still running, cannot be ended: pid {pids}{', …' if len(left) > 8 else ''}"


def end_remaining(
    view: JobView, descendants: Callable[[], set[Process]] = lambda: set[Process]()
) -> set[Process]:
    """Ends the remaining processes of a job without a supervisor; returns those that cannot be ended."""
    return end_processes(lambda: _remaining(view) | descendants(), min(view.record.grace, LONGEST_GRACE))


def end_unreadable(paths: JobPaths) -> set[Process]:
    """Ends the processes of a job whose record cannot be read; returns those that cannot be ended."""
    mark = process_marks.mark_of(paths.folder.name)
    return end_processes(
        lambda: {*process_marks.limit_marked(mark), *_supervisor_on_record(paths)}, LONGEST_GRACE
    )


def _supervisor_on_record(paths: JobPaths) -> set[Process]:
    """Returns the supervisor that the events name; the processes of jobs of older versions have no mark."""
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        for event in read_events(paths.events):
            if event["e"] == "supervisor" and event["boot"] == processes.boot_id():
                return {process_of(event["pid"], event["start"])}
    return set()


def end_processes(find: Callable[[], set[Process]], grace: float) -> set[Process]:
    """Ends processes and their new children: TERM, then KILL; returns those that cannot be ended."""
    spared = _self_and_ancestors()
    known: set[Process] = set()

    def alive() -> set[Process]:
        known.update(find() - spared)
        return {process for process in known if processes.is_alive(process)}

    end = time.monotonic() + grace
    for process in sorted(alive(), key=lambda p: (p.start, p.pid)):  # parents before their children
        processes.send(process, signal.SIGTERM)
        processes.send(process, signal.SIGCONT)
    killed_at: float | None = None  # not `end`: on a slow machine, a look at all processes takes long
    while left := alive():
        now = time.monotonic()
        if killed_at is not None and now > killed_at + GIVE_UP_AFTER:
            return left
        if now > end:
            killed_at = killed_at or now
            for process in left:
                processes.send(process, signal.SIGKILL)
        time.sleep(0.01)
    return set()


def _remaining(view: JobView) -> set[Process]:
    """Returns the running processes of the job's replicas, with their descendants.

    Reparented processes are found by the handle in their environment, or by their mark. Sessions of ended
    leaders are ignored: their numbers may have been reused.
    """
    leaders = [
        r.attempts[-1].process for r in view.replicas if r.attempts and r.attempts[-1].ended_at is None
    ]
    alive = [leader for leader in leaders if leader is not None and processes.is_alive(leader)]
    return set(alive) | processes.family([p.pid for p in alive]) | _marked(view)


def _marked(view: JobView) -> set[Process]:
    """Returns the processes with a mark of the job."""
    # a process older than the job does not belong to it, whatever its environment
    since = 0
    if view.supervisor is not None:
        since = view.supervisor.start
    marked = process_marks.marked(settings.TORCHX_JOB_ID, view.record.handle)
    marked += process_marks.limit_marked(process_marks.mark_of(view.record.app_id))
    return {process for process in marked if process.start >= since}


def _failed_first(view: JobView) -> tuple[int, int] | None:
    """Returns the replica that failed first, and its attempt."""
    failed = [
        (replica.attempts[-1].ended_at or 0.0, ordinal, replica.current)
        for ordinal, replica in enumerate(view.replicas)
        if replica.attempts and replica.attempts[-1].state == "FAILED"
    ]
    if failed:
        return min(failed)[1:]
    return None


def _self_and_ancestors() -> set[Process]:
    """Returns this process and its ancestors, which are spared if the command runs inside the job."""
    ancestry = set()
    pid = os.getpid()
    while pid > 1 and (entry := processes.look_up(pid)) is not None:
        ancestry.add(entry.process)
        pid = entry.parent
    return ancestry
