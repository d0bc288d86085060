"""Functions to end processes: TERM to all, a grace period, then KILL to the remaining ones."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Sequence

from torchx import settings
from torchx.jobs.recovery import describe_survivors
from torchx.machine.marks import environment_of
from torchx.machine.processes import Process, family, is_alive, send


def terminate(processes: Iterable[Process]) -> None:
    """Sends TERM to processes, and CONT so that stopped ones can end."""
    # parents first: a process that manages others should get the signal before they end
    for process in sorted(processes, key=lambda p: (p.start, p.pid)):
        if send(process, signal.SIGTERM):
            send(process, signal.SIGCONT)


def kill(processes: Iterable[Process]) -> None:
    """Kills processes."""
    for process in processes:
        send(process, signal.SIGKILL)


def with_family(replicas: Sequence[Process]) -> set[Process]:
    """Returns replicas together with their descendants."""
    return set(replicas) | family([replica.pid for replica in replicas])


def group_exists(leader: int) -> bool:
    """Returns True if the process group of an ended replica has members; takes one system call."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user
    return True


def started_for(handle: str, replicas: Collection[str]) -> set[Process]:
    """Returns the descendants of this process that belong to these replicas (``role/id``)."""
    job = f"{settings.TORCHX_JOB_ID}={handle}".encode("utf-8", "surrogateescape")
    marks = [f"{settings.TORCHX_REPLICA}={name}".encode("utf-8", "surrogateescape") for name in replicas]
    matching = set()
    for process in descendants():
        env = environment_of(process)
        if job in env and any(mark in env for mark in marks):
            matching.add(process)
    return matching


def descendants() -> set[Process]:
    """Returns all descendants of this process, including adopted ones."""
    return family([os.getpid()])


def notes(lost: int, lost_why: str, unendable: Iterable[Process]) -> tuple[str, ...]:
    """Returns the notes about the end of a job.

    Args:
        lost: bytes of output that were lost.
        lost_why: the reason of that.
        unendable: processes that could not be ended.
    """
    parts = []
    if lost:
        parts.append(f"{lost} bytes of output were lost: {lost_why}")
    left = {process for process in unendable if is_alive(process)}
    if left:
        parts.append(describe_survivors(left))
    return tuple(parts)
