"""The start of a waiting job: its leases, its GPUs and ports, and its supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.ticket import Ticket, load_origin
from torchx.lazy import lazy_imports
from torchx.leases import gpus as machine_gpus
from torchx.leases.gpus import Gpu, variables_of
from torchx.leases.holders import take
from torchx.queue import limits
from torchx.queue.order import Waiter, Wanted, check_needs
from torchx.supervisor import process
from torchx.supervisor.launch import MODULE

with lazy_imports:
    from torchx.machine import ports as machine_ports

STARTERS = {"local_docker": "torchx.schedulers.docker.starter"}
"""The modules that start applications of other engines, by scheduler. ``main`` of each gets the folder of the
record, and the descriptor of its lock. They are loaded in processes of their own."""

LOOK_AGAIN_AFTER = 5.0
"""Seconds after which a GPU is tried again that a program uses without a lease: nothing reports its end."""


def waiter_of(ticket: Ticket, uid: int) -> Waiter:
    """Returns a waiting job as all users see it.

    Raises:
        ValueError: its needs are damaged.
    """
    wanted = (
        Wanted(frozenset(lease for lease, _, _ in ticket.visible), ticket.gpus),
        Wanted(frozenset(ticket.cpus[0]), ticket.cpus[1]),
        Wanted(frozenset(ticket.memory[0]), ticket.memory[1]),
    )
    check_needs(wanted)
    return Waiter(
        uid, ticket.app_id, ticket.at, wanted, ticket.priority, ticket.limit, ticket.held, ticket.place_at
    )


def start(paths: JobPaths, ticket: Ticket, names: Sequence[str], lock: int) -> list[str] | None:
    """Starts the supervisor of a waiting job, or the process that creates its containers.

    Args:
        paths: the job.
        ticket: its ticket.
        names: the leases to take.
        lock: the descriptor of its lock, which the supervisor inherits.

    Returns:
        An empty list if it was started; the leases of the GPUs that other programs use, in which case it was
        not; None if another process has taken one of the leases.

    Raises:
        OSError: its files cannot be read or written, or the process cannot be started.
        ValueError: the recorded environment is damaged.
        TorchxError: its record is damaged, no port is free, or the supervisor does not become ready.
    """
    env = load_origin(paths.origin)
    chosen = [
        Gpu(lease.removeprefix(machine_gpus.PREFIX), text, number)
        for lease, text, number in ticket.visible
        if lease in set(names)
    ]
    busy = [use.gpu.lease for use in machine_gpus.survey(chosen, env) if use.computing]
    # of the schedulers, which are loaded on demand
    unleased: set[Gpu] = import_module("torchx.schedulers.shared.gpus").used_without_lease(chosen)
    busy += [gpu.lease for gpu in unleased]
    if busy:
        return busy
    leases = take(names)
    if leases is None:
        return None
    with contextlib.ExitStack() as held:
        held.enter_context(leases)
        descriptors = [lock, *leases.descriptors]
        record = JobRecord.load(paths.record)
        module, arguments = STARTERS.get(record.scheduler, MODULE), [str(paths.folder)]
        if module != MODULE:
            arguments.append(str(lock))
        else:
            _give_gpus(record, ticket, chosen)
            if ticket.ports:
                leased = held.enter_context(machine_ports.PortLeases(ticket.ports))
                descriptors += leased.descriptors
                for role in record.roles:
                    role.env.update({name: port for name, port in leased.env.items() if name not in role.env})
            record.save(paths.record)
        cwd = "/"
        if Path(ticket.cwd).is_dir():
            cwd = ticket.cwd
        log = paths.supervisor_log
        with limits.of_user():
            process.start(module, arguments, log, descriptors, env=env, cwd=cwd, umask=ticket.umask)
    return []


def _give_gpus(record: JobRecord, ticket: Ticket, chosen: Sequence[Gpu]) -> None:
    """Passes the GPUs to the replicas that request them."""
    left = iter(chosen)
    per_role = dict(ticket.per_role)
    for role in record.roles:
        for replica in role.replicas:
            given = [next(left) for _ in range(per_role.get(role.name, 0))]
            replica.env.update(variables_of(given))
