"""Leases GPUs for containers, which get them by id, so that two jobs never share one by accident.

The supervisor of the containers holds the leases. The containers also record which GPUs they use, in case it
is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from torchx.errors import TorchxError, UsageError
from torchx.jobs.ticket import Ticket
from torchx.json_limits import Data, Object
from torchx.lazy import lazy_imports
from torchx.leases.gpus import Gpu
from torchx.leases.holders import inherited, take
from torchx.leases.reception import answer
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.address import require_socket
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.journal import has_ended
from torchx.schedulers.docker.lookup import find_containers
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.docker.rules.job import job_of
from torchx.specs.app import AppDef
from torchx.specs.run_options import RunOptions
from torchx.supervisor.process import continue_under_guard

with lazy_imports:
    from torchx.schedulers.shared import queue, reservation


def requested(body: Data) -> int:
    """Returns the number of GPUs that a container requests without naming them."""
    requests = body["HostConfig"].get("DeviceRequests") or []
    return sum(max(0, int(one.get("Count") or 0)) for one in requests if not one.get("DeviceIDs"))


def taken(engine: Engine) -> set[str]:
    """Returns the ids of the GPUs in use by applications that have not ended."""
    return {
        gpu
        for containers in find_containers(engine).values()
        if is_under_way(containers) and not has_ended(containers[0].app_id)
        for container in containers
        for gpu in container.gpus
    }


def lease(
    engine: Engine,
    app_id: str,
    bodies: Sequence[Object],
    app: AppDef,
    cfg: RunOptions,
    at: float,
) -> tuple[reservation.Reservation | Ticket, list[str]]:
    """Leases the resources of containers, and allocates GPUs to those that request a number of them.

    The variable ``CUDA_VISIBLE_DEVICES`` of the caller limits the GPUs.

    Args:
        engine: the engine.
        app_id: the application.
        bodies: the create requests; the field `DeviceRequests` is replaced.
        app: the definition of the application.
        cfg: the run options.
        at: the time of the submission, seconds since the epoch.

    Returns:
        The leases, which the supervisor inherits, or a ticket if the application has to wait for them; and
        notes for the user, a line each.

    Raises:
        StateError: there are not enough resources, and it must not wait.
        UsageError: the engine is on another machine, whose CPUs and memory cannot be reserved.
    """
    needs = reservation.needs_of(app.roles, sum(map(requested, bodies)), cfg)
    if not engine.address.path:
        if needs.cpus or needs.memory:
            raise UsageError(
                f"`reserve` needs an engine on this machine, and {engine.address} is on another one",
                hint="leave out: -cfg reserve=true",
            )
        note = "GPUs are taken in order: a remote engine does not report which are free"
        return reservation.Reservation.of_nothing(), [note] if needs.gpus else []
    here = None
    if any(needs):
        here = reservation.capacity(needs, os.environ)
    if here is not None and not here.gpus:  # the engine decides: it may have GPUs that are not visible here
        needs = needs._replace(gpus=0)
    if here is None or not any(needs):
        return reservation.Reservation.of_nothing(), []
    reserved = queue.take_or_wait(app_id, at, needs, here, cfg)
    if isinstance(reserved, Ticket):
        return reserved, []
    reserved = reserved or reservation.require(needs, here, app.name)
    assign(bodies, [gpu.id for gpu in reserved.gpus])
    return reserved, []


def assign(bodies: Iterable[Object], gpus: Iterable[str]) -> None:
    """Allocates GPUs to the containers that request a number of them.

    Args:
        bodies: the create requests; the field `DeviceRequests` is replaced.
        gpus: the ids of the GPUs, as many as they request; none if the engine decides.
    """
    left = list(gpus)
    for body in filter(requested, bodies) if left else ():
        host = body["HostConfig"]
        host["DeviceRequests"] = [_with_ids(one, left) for one in host["DeviceRequests"]]


def used_here() -> set[str]:
    """Returns the GPUs that containers on this machine use; none if no engine of this machine answers."""
    with suppress(TorchxError):
        require_socket()
        engine = Engine()
        if engine.address.path:
            return taken(engine)
    return set()


def keep_leases(app_id: str, containers: Sequence[Container]) -> None:
    """Keeps the leases of an application as long as its supervisor or the guard of that runs.

    The supervisor of an application has inherited them. One that replaces a killed supervisor takes them
    again, unless another job has them.

    Args:
        app_id: the application.
        containers: its containers, as far as they are known.
    """
    leases = inherited()
    ends: float | None = None
    with suppress(TorchxError, OSError):
        ends = latest_end(containers)
        live = () if leases.names else [container for container in containers if container.live]
        for gpu in {gpu for container in live for gpu in container.gpus}:
            if gpu.startswith(("GPU-", "MIG-")) and (taken := take([Gpu(gpu, gpu).lease])) is not None:
                leases.add(taken)
    if leases.names:
        continue_under_guard()
        answer(leases, app_id, ends)


def latest_end(containers: Sequence[Container]) -> float | None:
    """Returns the latest end of an application, seconds since the epoch; None if unknown."""
    if not containers or damage_of(containers):
        return None
    job = job_of(containers)
    if job.limits.limit is None or job.limits.requeue:
        return None
    return max(container.ends_at for container in containers) + job.grace


def _with_ids(request: Data, left: list[str]) -> Data:
    """Returns a request for devices with as many GPUs as it requests, which are taken from a list."""
    count = int(request.get("Count") or 0)
    if count <= 0 or request.get("DeviceIDs"):
        return request
    named = {name: value for name, value in request.items() if name != "Count"}
    return {**named, "DeviceIDs": [left.pop(0) for _ in range(count)]}
