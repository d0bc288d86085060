"""GPUs in use by jobs that hold no lease of this machine: containers, and jobs of the version before."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from torchx.errors import TorchxError
from torchx.jobs.paths import Home, file_name, user_home
from torchx.leases.gpus import Gpu
from torchx.machine import locks

USERS = ("torchx.schedulers.docker.gpus",)
"""Modules of engines whose jobs may use GPUs of this machine without a lease, as their supervisor was killed;
``used_here`` of each returns the ids or indexes. They are loaded on demand, as the schedulers are."""


def used_without_lease(gpus: list[Gpu]) -> set[Gpu]:
    """Returns the GPUs that jobs use without a lease.

    Args:
        gpus: GPUs of this machine.
    """
    if not gpus:
        return set()
    used = {name for module in USERS for name in import_module(module).used_here()}
    return {gpu for gpu in gpus if not used.isdisjoint({gpu.id, gpu.number, gpu.name}) or _is_locked(gpu)}


def _is_locked(gpu: Gpu) -> bool:
    """Returns True if a job of an older version has this GPU: it holds a lock file."""
    names = {gpu.id, gpu.number, gpu.name} - {""}
    with suppress(OSError, TorchxError):
        folder = Home(user_home()).devices
        return any(locks.is_held(folder / f"gpu-{file_name(name)}") for name in names)
    return False
