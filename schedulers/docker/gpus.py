"""GPUs of an engine's machine, handed out by id, so that two jobs never share one unasked.

Which are taken stands on the engine itself, with the containers that have them: whoever submits sees it, and
it holds as long as they are there to run, whatever becomes of the process that submitted them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from torchx.errors import StateError, TorchxError
from torchx.jobs.paths import Home, state_home
from torchx.machine.files import make_folder
from torchx.schedulers.docker.engine.address import require_socket
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import look
from torchx.schedulers.docker.replay import is_under_way
from torchx.schedulers.docker.supervisor_launch import docker_home
from torchx.schedulers.shared.gpus import Leases, visible_gpus


def wanted(body: Mapping[str, Any]) -> int:
    """Returns how many GPUs a container asks for without saying which."""
    requests = body["HostConfig"].get("DeviceRequests") or []
    return sum(max(0, int(one.get("Count") or 0)) for one in requests if not one.get("DeviceIDs"))


def taken(engine: Engine) -> set[str]:
    """Returns the ids of the GPUs that applications have which have not ended."""
    return {
        gpu
        for containers in look(engine).values()
        if is_under_way(containers)
        for container in containers
        for gpu in container.gpus
    }


@contextmanager
def leased(engine: Engine, bodies: Sequence[dict[str, Any]], env: Mapping[str, str]) -> Iterator[list[str]]:
    """Gives each container that asks for a number of GPUs some of its own, while it is being made.

    Args:
        engine: where they will run.
        bodies: what the engine is sent; changed in place.
        env: ``CUDA_VISIBLE_DEVICES`` there leaves only some to hand out.

    Yields:
        What there is to say about it, a line each.

    Raises:
        StateError: there are not as many free ones.
    """
    asking = [body for body in bodies if wanted(body)]
    if not asking:
        yield []
        return
    if not engine.address.path:
        yield ["GPUs are counted from the first one on: which are free is not known of an engine elsewhere"]
        return
    gpus = visible_gpus(env)
    if not gpus:
        yield []  # the engine has the last word: it may have some that are not seen from here
        return
    with _alone(), closing(Leases(Home(state_home()).devices)) as of_local_jobs:
        used = taken(engine)
        total = sum(map(wanted, asking))
        free = of_local_jobs.take([gpu for gpu in gpus if gpu not in used], total)
        if len(free) < total:
            raise StateError(
                f"{total} GPUs are asked for; this machine has {len(gpus)}, {len(free)} of them free",
                hint="see what runs: torchx list   to share them, name them: docs/docker.md",
            )
        left = iter(free)
        for body in asking:
            for one in body["HostConfig"]["DeviceRequests"]:
                if one.get("Count", 0) > 0 and not one.get("DeviceIDs"):
                    one["DeviceIDs"] = [next(left) for _ in range(one.pop("Count"))]
        yield []


@contextmanager
def left_by_containers(gpus: Sequence[str]) -> Iterator[list[str]]:
    """Gives those GPUs of this machine that no containers have; meanwhile none takes one.

    Args:
        gpus: those that there are.

    Yields:
        Those that are free as far as containers go; all of them where no engine of this machine answers.
    """
    with ExitStack() as held:
        used: set[str] = set()
        with suppress(TorchxError):
            require_socket()
            engine = Engine()
            if engine.address.path:
                held.enter_context(_alone())
                used = taken(engine)
        yield [gpu for gpu in gpus if gpu not in used]


@contextmanager
def _alone() -> Iterator[None]:
    """Lets no other submission of this person choose GPUs meanwhile."""
    home = docker_home().path
    make_folder(home)
    descriptor = os.open(home / "gpus.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
