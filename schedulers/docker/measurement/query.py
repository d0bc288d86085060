"""The measurements of containers: those that a supervisor recorded, or else the statistics of the engine."""

from __future__ import annotations

from collections.abc import Sequence

from torchx.jobs.measurement import read_usage
from torchx.machine.cgroups import Totals
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.parallel import in_parallel
from torchx.schedulers.docker.folder import own_folder, view_of
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.measurement import statistics
from torchx.schedulers.docker.status import describe_all
from torchx.schedulers.shared.measurement import requests_of
from torchx.scheduling.measurement import AppUsage, ReplicaUsage, Requested, Sample

SOURCE = "control groups"


def usage(engine: Engine, app_id: str) -> AppUsage | None:
    """Returns the measurements of an application.

    The supervisor of this machine records them. Without its file, those of another machine and of the first
    second, the engine is queried; it keeps no statistics of ended containers.

    Returns:
        None without measurements.
    """
    containers = containers_of(engine, app_id)
    if not containers or damage_of(containers):
        return None
    requests = requests_of(describe_all(containers).roles)
    recorded, paths, view = None, own_folder(app_id), view_of(app_id)
    if paths is not None and view is not None:
        recorded = read_usage(view, paths, SOURCE)
    return recorded or _current(engine, containers, requests)


def _current(
    engine: Engine, containers: Sequence[Container], requests: dict[str, Requested]
) -> AppUsage | None:
    """Returns the statistics of the running containers."""
    running = [c for c in containers if c.status == "running" and c.started is not None]

    def measure(container: Container) -> ReplicaUsage | None:
        totals = statistics.measure(engine, container)
        if totals is None:
            return None
        sample = sample_of(totals, container.started or 0.0, engine.clock.now())
        requested = requests.get(container.role, Requested())
        role, replica, attempt = container.role, container.replica, container.attempt
        return ReplicaUsage(role, replica, attempt, sample, (sample,), True, requested)

    order = {name: number for number, name in enumerate(requests)}
    running.sort(key=lambda c: (order.get(c.role, 0), c.replica))
    measured = [found for found in in_parallel(measure, running) if isinstance(found, ReplicaUsage)]
    if measured:
        return AppUsage(tuple(measured), "the statistics of the engine", current=("memory",))
    return None


def sample_of(totals: Totals, started: float, now: float) -> Sample:
    """Returns the measurements of a container.

    Args:
        totals: the resources that it has used.
        started: the start of the container, seconds since the epoch.
        now: the current time.
    """
    span = max(now - started, 1e-3)
    cpu, memory, read, write = totals
    rates = (None if value is None else value / span for value in (cpu, read, write))
    cpu, read_rate, write_rate = rates
    return Sample(now, span, cpu, memory, read=read_rate, write=write_rate)
