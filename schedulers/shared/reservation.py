"""Reservations: the leases of this machine that a job gets before it starts, all of them or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.leases.holders import Leases, names_in_use, take_some
from torchx.printable import counted
from torchx.specs.app import Role
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.leases import gpus as machine_gpus
    from torchx.leases import machine
    from torchx.schedulers.shared import gpus as used_gpus

REASONS = 4
"""Maximum number of GPUs of which an error shows the holders."""


class Needs(NamedTuple):
    """The resources that a job reserves.

    Attributes:
        gpus: number of GPUs.
        cpus: number of processors; 0 to reserve none.
        memory: bytes of memory; 0 to reserve none.
    """

    gpus: int
    cpus: int = 0
    memory: int = 0

    def __str__(self) -> str:
        """Returns the needs for messages.

        >>> str(Needs(4)), str(Needs(1, 2, 3 << 30))
        ('4 GPUs', '1 GPU, 2 CPUs, 3.0 GiB of memory')
        """
        parts = []
        if self.gpus:
            parts = [counted(self.gpus, "GPU")]
        if self.cpus:
            parts += [counted(self.cpus, "CPU")]
        if self.memory:
            parts += [f"{self.memory / (1 << 30):,.1f} GiB of memory"]
        return ", ".join(parts)


def needs_of(roles: Iterable[Role], gpus: int, cfg: RunOptions) -> Needs:
    """Returns the resources that the replicas of roles reserve.

    Args:
        roles: the roles.
        gpus: the number of GPUs that are not named by the user.
        cfg: the run options; with ``reserve`` processors and memory are reserved too.
    """
    if not cfg.get("reserve"):
        return Needs(gpus)
    cpus = sum(max(0, role.resource.cpu) * role.num_replicas for role in roles)
    memory = sum(max(0, role.resource.memMB) * role.num_replicas for role in roles)
    return Needs(gpus, cpus, memory << 20)


class Reservation:
    """The leases of a job, which its supervisor inherits.

    Attributes:
        leases: the leases.
        gpus: the leased GPUs.
    """

    def __init__(self, leases: Leases, gpus: list[machine_gpus.Gpu]) -> None:
        self.leases = leases
        self.gpus = gpus

    @classmethod
    def of_nothing(cls) -> Reservation:
        """Returns a reservation without leases."""
        return cls(Leases({}), [])

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that hold the leases."""
        return self.leases.descriptors

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.leases.close()


class Capacity(NamedTuple):
    """The resources that a job with some needs may use here, and those of them that are free.

    Attributes:
        gpus: the use of each visible GPU; empty if no GPUs are needed.
        elsewhere: the GPUs that jobs use without a lease.
        cpus: the names of the leases of processors; empty if none is needed.
        memory: the names of the leases of memory; empty if none is needed.
    """

    gpus: tuple[machine_gpus.GpuUse, ...] = ()
    elsewhere: frozenset[machine_gpus.Gpu] = frozenset()
    cpus: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()

    @property
    def free_gpus(self) -> list[machine_gpus.Gpu]:
        """The GPUs that can be leased, in their order."""
        return [use.gpu for use in self.gpus if use.is_free and use.gpu not in self.elsewhere]

    def take(self, needs: Needs) -> Reservation | None:
        """Takes the leases of a job; returns None if too few are free."""
        if not any(needs):
            return Reservation.of_nothing()
        free = self.free_gpus
        wanted = [([gpu.lease for gpu in free], needs.gpus), (self.cpus, needs.cpus)]
        if needs.memory:
            wanted.append((self.memory, machine.units(needs.memory)))
        leases = take_some(wanted)
        if leases is None:
            return None
        names = set(leases.names)
        return Reservation(leases, [gpu for gpu in free if gpu.lease in names])

    def shortage(self, needs: Needs) -> str:
        """Returns the first resource that is not free in the needed amount, with numbers; empty if none."""
        if self.cpus or self.memory:
            used = names_in_use()
        else:
            used = set()
        cpus, memory = (
            len([name for name in names if name not in used]) for names in (self.cpus, self.memory)
        )
        unit = machine.memory_unit() / (1 << 30)
        gpus = len(self.free_gpus)
        if gpus < needs.gpus:
            return f"{Needs(needs.gpus)}; this machine has {len(self.gpus)}, {gpus} of them free"
        if cpus < needs.cpus:
            return f"{Needs(0, needs.cpus)}; this machine has {len(self.cpus)}, {cpus} of them free"
        if memory < machine.units(needs.memory):
            has = f"{len(self.memory) * unit:,.1f} GiB, {memory * unit:,.1f} GiB of them free"
            return f"{Needs(0, 0, needs.memory)}; this machine has {has}"
        return ""

    def reasons(self) -> str:
        """Returns the users of the GPUs that are not free, for a hint; empty if all are free."""
        users: dict[str, list[str]] = {}
        for use in self.gpus:
            without_lease = ""
            if use.gpu in self.elsewhere:
                without_lease = "a container, or a job without a lease"
            if reason := use.reason or without_lease:
                users.setdefault(reason, []).append(use.gpu.name)
        shown = [f"GPU {', '.join(names)}: {reason}" for reason, names in users.items()]
        more = []
        if len(shown) > REASONS:
            more = [f"and {len(shown) - REASONS} more"]
        return "; ".join(shown[:REASONS] + more)


def capacity(needs: Needs, env: Mapping[str, str]) -> Capacity:
    """Returns the resources of this machine that a job may use, as far as it needs them.

    Args:
        needs: the needs of the job.
        env: the environment of the caller: ``CUDA_VISIBLE_DEVICES`` limits the GPUs.
    """
    uses: list[machine_gpus.GpuUse] = []
    elsewhere: set[machine_gpus.Gpu] = set()
    if needs.gpus:
        uses = machine_gpus.survey(machine_gpus.visible_gpus(env), env)
        elsewhere = used_gpus.used_without_lease([use.gpu for use in uses if use.is_free])
    return Capacity(
        tuple(uses),
        frozenset(elsewhere),
        tuple(machine.cpu_names()) if needs.cpus else (),
        tuple(machine.memory_names()) if needs.memory else (),
    )


def require(needs: Needs, here: Capacity, app: str) -> Reservation:
    """Takes the leases of a job.

    Args:
        needs: the needs of the job.
        here: the resources that it may use.
        app: the name of the application, for the message.

    Raises:
        StateError: too few are free.
    """
    reservation = here.take(needs)
    if reservation is None:
        short = here.shortage(needs) or f"{needs}; another job has just taken some of them"
        reasons = here.reasons() if "GPU" in short else ""
        raise StateError(
            f"{app} requests {short}",
            hint=reasons or "list the running applications: torchx list",
            code="insufficient_resources",
        )
    return reservation
