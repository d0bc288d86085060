"""Leases GPUs for containers, which get them by id, so that two jobs never share one by accident.

The supervisor of the containers holds the leases. The containers also record which GPUs they use, in case it
is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.leases.gpus import Gpu
from torchx.leases.holders import inherited, take
from torchx.leases.reception import answer
from torchx.schedulers.docker.engine.address import require_socket
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import find_containers
from torchx.schedulers.docker.replay import is_under_way
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal
from torchx.supervisor.process import continue_under_guard

with lazy_imports:
    from torchx.schedulers.shared import reservation


def requested(body: Mapping[str, Any]) -> int:
    """Returns the number of GPUs that a container requests without naming them."""
    requests = body["HostConfig"].get("DeviceRequests") or []
    return sum(max(0, int(one.get("Count") or 0)) for one in requests if not one.get("DeviceIDs"))


def taken(engine: Engine) -> set[str]:
    """Returns the ids of the GPUs in use by applications that have not ended."""
    return {
        gpu
        for containers in find_containers(engine).values()
        if is_under_way(containers)
        for container in containers
        for gpu in container.gpus
    }


def lease(
    engine: Engine, bodies: Sequence[dict[str, Any]], app: AppDef, cfg: Mapping[str, CfgVal]
) -> tuple[reservation.Reservation, list[str]]:
    """Leases the resources of containers, and allocates GPUs to those that request a number of them.

    The variable ``CUDA_VISIBLE_DEVICES`` of the caller limits the GPUs.

    Args:
        engine: the engine.
        bodies: the create requests; the field `DeviceRequests` is replaced.
        app: the application.
        cfg: the run options.

    Returns:
        The leases, which the supervisor inherits, and notes for the user, a line each.

    Raises:
        StateError: there are not enough free resources.
        UsageError: the engine is on another machine, whose CPUs and memory cannot be reserved.
    """
    needs = reservation.needs_of(app.roles, sum(map(requested, bodies)), cfg)
    if not engine.address.path:
        if needs.cpus or needs.memory:
            raise UsageError(
                f"`reserve` is for an engine on this machine, and {engine.address} is on another one",
                hint="leave out: -cfg reserve=true",
            )
        note = "GPUs are allocated from the first one on: it is unknown which are free on a remote engine"
        return reservation.Reservation.of_nothing(), [note] if needs.gpus else []
    here = reservation.capacity(needs, os.environ)
    if not here.gpus:  # the engine decides: it may have GPUs that are not visible here
        return reservation.require(needs._replace(gpus=0), here, app.name), []
    reserved = reservation.require(needs, here, app.name)
    left = iter(reserved.gpus)
    for body in filter(requested, bodies):
        host = body["HostConfig"]
        host["DeviceRequests"] = [_with_ids(one, left) for one in host["DeviceRequests"]]
    return reserved, []


def used_here() -> set[str]:
    """Returns the GPUs that containers on this machine use; none if no engine of this machine answers."""
    with suppress(TorchxError):
        require_socket()
        engine = Engine()
        if engine.address.path:
            return taken(engine)
    return set()


def keep_leases(engine: Engine, app_id: str) -> None:
    """Keeps the leases of an application as long as its supervisor or the guard of that runs.

    The supervisor of an application has inherited them. One that replaces a killed supervisor takes them
    again, unless another job has them.

    Args:
        engine: the engine.
        app_id: the application.
    """
    leases = inherited()
    with suppress(TorchxError, OSError):
        containers = () if leases.names else find_containers(engine, app_id).get(app_id, ())
        gpus = {gpu for container in containers if container.live for gpu in container.gpus}
        for gpu in gpus:
            if gpu.startswith(("GPU-", "MIG-")) and (taken := take([Gpu(gpu, gpu).lease])) is not None:
                leases.add(taken)
    if leases.names:
        continue_under_guard()
        answer(leases, app_id)


def _with_ids(request: Mapping[str, Any], free: Iterator[Gpu]) -> Mapping[str, Any]:
    """Returns a request for devices with as many of the free GPUs as it requests."""
    count = int(request.get("Count") or 0)
    if count <= 0 or request.get("DeviceIDs"):
        return request
    named = {name: value for name, value in request.items() if name != "Count"}
    return {**named, "DeviceIDs": [next(free).id for _ in range(count)]}
