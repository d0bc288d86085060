"""The GPUs of this machine with their users, and the jobs that wait; changes of own waiting jobs."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import StateError
from torchx.jobs.paths import Home, user_home
from torchx.jobs.ticket import Ticket, folder_of, marked
from torchx.leases import gpus as machine_gpus
from torchx.leases import machine
from torchx.leases.holders import holders, names_in_use
from torchx.machine import processes
from torchx.queue import launch, reasons

if TYPE_CHECKING:
    from torchx.queue.order import Waiter

FIRST, HOLD, RELEASE = "first", "hold", "release"
ACTIONS = (FIRST, HOLD, RELEASE)


class GpuRow(NamedTuple):
    """A GPU of this machine.

    Attributes:
        gpu: its index, or its id if it is an instance of a divided GPU.
        id: its id.
        app: the application that holds it; empty without one.
        user: the user of the holder, or of the first process that computes on it; empty if it is free.
        pid: the process, if it was not started by torchx.
        program: its program.
        since: seconds since the epoch; None if unknown.
        use: its utilisation, 0 to 1; None if unknown.
        memory: bytes in use; None if unknown.
        total: bytes of its memory; None if unknown.
    """

    gpu: str
    id: str
    app: str = ""
    user: str = ""
    pid: int | None = None
    program: str = ""
    since: float | None = None
    use: float | None = None
    memory: int | None = None
    total: int | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing uses it."""
        return not self.user


class ReservedRow(NamedTuple):
    """An application that holds CPUs or memory of this machine.

    Attributes:
        app: the application; empty if it is unknown.
        user: its user.
        cpus: the number of processors that it holds.
        memory: bytes of memory that it holds.
        since: seconds since the epoch; None if unknown.
    """

    app: str
    user: str
    cpus: int
    memory: int
    since: float | None


class WaitingRow(NamedTuple):
    """A waiting job.

    Attributes:
        app_id: the application.
        user: its user.
        gpus: the number of GPUs that it needs.
        cpus: the number of processors that it reserves.
        memory: bytes of memory that it reserves.
        priority: its priority.
        since: the time that determines its place, seconds since the epoch by the clock of now.
        limit: its time limit in seconds; None without one.
        held: whether it is held.
        own: whether it is a job of this state home.
        reason: why it waits.
    """

    app_id: str
    user: str
    gpus: int
    cpus: int
    memory: int
    priority: int
    since: float
    limit: float | None
    held: bool
    own: bool
    reason: str


def gpu_rows(env: Mapping[str, str]) -> list[GpuRow]:
    """Returns the GPUs of this machine; empty if no driver answers.

    Args:
        env: the environment whose PATH has ``nvidia-smi``.
    """
    gpus = machine_gpus.all_gpus(env)
    if not gpus:
        return []
    measured = machine_gpus.measure(env)
    rows = []
    for use in machine_gpus.survey(gpus, env):
        share, memory, total = measured.get(use.gpu.id, (None, None, None))
        row = GpuRow(use.gpu.name, use.gpu.id, use=share, memory=memory, total=total)
        if use.holder is not None:
            user = machine_gpus.user_name(use.holder.uid)
            row = row._replace(app=use.holder.app, user=user, since=use.holder.since)
            if not use.holder.app:
                row = row._replace(pid=use.holder.pid)
        elif use.computing:
            first = use.computing[0]
            user = machine_gpus.user_name(first.uid)
            row = row._replace(user=user, pid=first.pid, program=first.program)
        rows.append(row)
    return rows


def reserved_rows() -> list[ReservedRow]:
    """Returns the applications that hold CPUs or memory of this machine, those that hold most first."""
    counts: Counter[tuple[int | None, str, str]] = Counter()
    since: dict[tuple[int | None, str], float | None] = {}
    names = [name for name in names_in_use() if name.startswith(machine.PREFIXES)]
    for name, holder in holders(names).items():
        counts[holder.uid, holder.app, name.partition("-")[0]] += 1
        since[holder.uid, holder.app] = holder.since
    rows = [
        ReservedRow(
            app,
            machine_gpus.user_name(uid),
            counts[uid, app, "cpu"],
            counts[uid, app, "memory"] * machine.memory_unit(),
            at,
        )
        for (uid, app), at in since.items()
    ]
    return sorted(rows, key=attrgetter("cpus", "memory"), reverse=True)


def waiting_rows() -> list[WaitingRow]:
    """Returns the waiting jobs of all users in their order, then own ones from before a restart."""
    home = Home(user_home())
    mine = {name: _ticket(home, name) for name in marked(home)}
    rows = []
    for verdict in reasons.verdicts().values():
        waiter = verdict.waiter
        own = waiter.uid == os.geteuid() and folder_of(waiter.app_id) in mine
        counts = [wanted.amount for wanted in waiter.wanted] + [0, 0, 0]
        since = _since(waiter.at, waiter.place_at)
        rows.append(_row(waiter, waiter.uid, counts, since, own, verdict.reason or "starting"))
    known = {row.app_id for row in rows if row.own}
    for ticket in mine.values():
        if ticket is not None and ticket.app_id not in known:
            reason, since = "not started since the machine was restarted", ticket.at
            if ticket.is_of_this_boot:
                reason, since = "starting", _since(ticket.at, ticket.place_at)
            counts = [ticket.gpus, ticket.cpus[1], ticket.memory[1]]
            rows.append(_row(ticket, os.geteuid(), counts, since, True, reason))
    return rows


def _row(
    job: Waiter | Ticket, uid: int, counts: Sequence[int], since: float, own: bool, reason: str
) -> WaitingRow:
    gpus, cpus, units = counts[:3]
    return WaitingRow(
        job.app_id,
        machine_gpus.user_name(uid),
        gpus,
        cpus,
        units * machine.memory_unit(),
        job.priority,
        since,
        job.limit,
        job.held,
        own,
        reason,
    )


def _since(at: float, place_at: float) -> float:
    """Returns the time of a place in the queue; `at` is the submission, by the clock of that time."""
    if not place_at:
        return at
    return time.time() - (processes.uptime() - place_at)


def _ticket(home: Home, name: str) -> Ticket | None:
    try:
        return Ticket.load(home.job(name))
    except (OSError, StateError):
        return None


def change(app_id: str, action: str) -> None:
    """Changes the place of a waiting job of this user.

    Args:
        app_id: the job.
        action: ``first`` moves it ahead of the user's other jobs of its priority, ``hold`` keeps it from
            starting, ``release`` ends that, also after a restart of the machine.

    Raises:
        StateError: it does not wait, or the queue cannot be reached.
    """
    home = Home(user_home())
    paths = home.job(app_id)
    try:
        if action == FIRST:
            ticket = Ticket.load(paths)
            others = [_ticket(home, name) for name in marked(home)]
            same = [
                other.place_at
                for other in others
                if other is not None and other.is_of_this_boot and other.priority == ticket.priority
            ]
            # just before the first own one: this passes no job of another user that it waits behind
            place = max(0.0, min([ticket.place_at, *same]) - 1e-3)
            launch.change(home, paths, held=False, place_at=place)
        else:
            place_at = None
            if not Ticket.load(paths).is_of_this_boot:  # it goes to the end of the queue
                place_at = processes.uptime()
            launch.change(home, paths, held=action == HOLD, place_at=place_at)
    except FileNotFoundError:
        raise StateError(
            f"{app_id} is not waiting in the queue", hint="list the waiting jobs: torchx queue"
        ) from None
    except OSError as error:
        raise StateError(f"{app_id} cannot be changed: {error.strerror}") from error
