"""How processes are ended: TERM to all of them, a time of grace, then KILL to all that are left."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Sequence

from torchx import settings
from torchx.machine.marks import environment_of
from torchx.machine.processes import Process, family, send


def terminate(processes: Iterable[Process]) -> None:
    """Asks processes to end; a stopped one is woken so that it can."""
    # parents first: what looks after others is to know of it before they end
    for process in sorted(processes, key=lambda p: (p.start, p.pid)):
        if send(process, signal.SIGTERM):
            send(process, signal.SIGCONT)


def kill(processes: Iterable[Process]) -> None:
    """Kills processes."""
    for process in processes:
        send(process, signal.SIGKILL)


def with_family(replicas: Sequence[Process]) -> set[Process]:
    """Returns running replicas with all that they have started."""
    return set(replicas) | family([replica.pid for replica in replicas])


def may_have_left_some(leader: int) -> bool:
    """Tells, at the price of one call, whether something of an ended replica's process group runs on."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user: there, and not ours to end
    return True


def started_for(handle: str, replicas: Collection[str]) -> set[Process]:
    """Returns what descends from this process and was started for one of these replicas, ``role/id``."""
    job = f"{settings.TORCHX_JOB_ID}={handle}".encode("utf-8", "surrogateescape")
    marks = [f"{settings.TORCHX_REPLICA}={name}".encode("utf-8", "surrogateescape") for name in replicas]
    found = set()
    for process in of_this_process():
        env = environment_of(process)
        if job in env and any(mark in env for mark in marks):
            found.add(process)
    return found


def of_this_process() -> set[Process]:
    """Returns everything that descends from this process, what it has adopted included."""
    return family([os.getpid()])
