"""Allocates the GPUs of an engine's machine by id, so that two jobs never share one by accident.

The containers on the engine record which GPUs are in use, for every user and as long as the containers run,
even if the submitting process has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import Any

from torchx.errors import StateError, TorchxError
from torchx.jobs.paths import Home, state_home
from torchx.machine import locks
from torchx.schedulers.docker.engine.address import require_socket
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import find_containers
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.docker.supervisor_launch import docker_home
from torchx.schedulers.shared.gpus import Leases, visible_gpus


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


@contextmanager
def leased(engine: Engine, bodies: Sequence[dict[str, Any]], env: Mapping[str, str]) -> Iterator[list[str]]:
    """Allocates GPUs to each container that requests a number of them, until the containers are created.

    Args:
        engine: the engine.
        bodies: the create requests; the field `DeviceRequests` is replaced.
        env: an environment whose ``CUDA_VISIBLE_DEVICES`` limits the GPUs to allocate.

    Yields:
        Notes for the user, a line each.

    Raises:
        StateError: there are not enough free GPUs.
    """
    requesting = [body for body in bodies if requested(body)]
    if not requesting:
        yield []
        return
    if not engine.address.path:
        yield ["GPUs are allocated from the first one on: it is unknown which are free on a remote engine"]
        return
    gpus = visible_gpus(env)
    if not gpus:
        yield []  # the engine decides: it may have GPUs that are not visible here
        return
    with _exclusive(), closing(Leases(Home(state_home()).devices)) as leases:
        used = taken(engine)
        total = sum(map(requested, requesting))
        free = leases.take([gpu for gpu in gpus if gpu not in used], total)
        if len(free) < total:
            raise StateError(
                f"{total} GPUs are requested; this machine has {len(gpus)}, {len(free)} of them free",
                hint="list the running jobs: torchx list   to share GPUs, name them: docs/docker.md",
                code="insufficient_resources",
            )
        left = iter(free)
        for body in requesting:
            host = body["HostConfig"]
            host["DeviceRequests"] = [_with_ids(one, left) for one in host["DeviceRequests"]]
        yield []


def _with_ids(request: Mapping[str, Any], free: Iterator[str]) -> Mapping[str, Any]:
    """Returns a request for devices with as many of the free GPUs as it requests."""
    count = int(request.get("Count") or 0)
    if count <= 0 or request.get("DeviceIDs"):
        return request
    named = {name: value for name, value in request.items() if name != "Count"}
    return {**named, "DeviceIDs": [next(free) for _ in range(count)]}


@contextmanager
def left_by_jobs(gpus: Sequence[str]) -> Iterator[list[str]]:
    """Yields the GPUs of this machine that no container uses, and keeps containers from taking one meanwhile.

    Args:
        gpus: the GPUs of this machine.

    Yields:
        The GPUs that no container uses; all of them if no engine of this machine answers.
    """
    with ExitStack() as held:
        used: set[str] = set()
        with suppress(TorchxError):
            require_socket()
            engine = Engine()
            if engine.address.path:
                held.enter_context(_exclusive())
                used = taken(engine)
        yield [gpu for gpu in gpus if gpu not in used]


def _exclusive() -> AbstractContextManager[None]:
    """Keeps other submissions of this user from allocating GPUs meanwhile."""
    return locks.exclusive(docker_home().path / "gpus.lock")
