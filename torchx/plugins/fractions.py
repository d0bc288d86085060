"""Parts of a machine: which there are, how they are called, and how much each holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

WHOLE = 1.0
"""A whole machine."""
HALF = 1 / 2
"""Half of one."""
QUARTER = 1 / 4
"""A quarter of one."""
EIGHTH = 1 / 8
"""An eighth of one."""
SIXTEENTH = 1 / 16
"""A sixteenth of one."""

Fractions = dict[float, str]
"""Size of a part (of 1) to the suffix of its name."""


def powers_of_two_gpus(resource: Any) -> Fractions:
    """Parts by accelerators: all of them, half of them, and so on down to one.

    Raises:
        ValueError: their number is not a power of two.

    >>> from torchx.specs import Resource
    >>> powers_of_two_gpus(Resource(cpu=32, gpu=4, memMB=1024))
    {1.0: '4', 0.5: '2', 0.25: '1'}
    """
    gpus: int = resource.gpu
    if gpus < 1 or gpus & (gpus - 1):
        raise ValueError(f"gpu must be a power of two to be halved down to one, got {gpus}")
    return {part / gpus: str(part) for part in (gpus >> i for i in range(gpus.bit_length()))}


def halve_mem_down_to(*, minGiB: int) -> Callable[[Any], Fractions]:
    """Parts by memory: all of it, half of it, and so on while at least ``minGiB`` GiB are left.

    The function that it returns raises ValueError if a part is not a whole number of GiB.

    >>> from torchx.specs import Resource
    >>> halve_mem_down_to(minGiB=16)(Resource(cpu=32, gpu=4, memMB=64 * 1024))
    {1.0: '64', 0.5: '32', 0.25: '16'}
    """

    def parts(resource: Any) -> Fractions:
        found: Fractions = {}
        mem_mb, fraction = resource.memMB, WHOLE
        while mem_mb >= max(minGiB, 1) * 1024:
            if mem_mb % 1024:
                raise ValueError(f"memMB must be a whole number of GiB at each halving, got {mem_mb}")
            found[fraction] = str(int(mem_mb // 1024))
            mem_mb, fraction = mem_mb / 2, fraction / 2
        return found

    return parts


def take_part(resource: Any, fraction: float) -> Any:
    """Returns a part of a resource: of processors, accelerators, memory and devices alike, rounded down.

    At least one processor is left; a device of which less than one is left is dropped.

    Raises:
        ValueError: the part of the accelerators is not a whole number.
    """
    gpu = resource.gpu * fraction
    if gpu != int(gpu):
        raise ValueError(f"{fraction:g} of {resource.gpu} accelerators is not a whole number")
    devices = {name: int(count * fraction) for name, count in resource.devices.items()}
    return dataclasses.replace(
        resource,
        cpu=max(1, int(resource.cpu * fraction)),
        gpu=int(gpu),
        memMB=int(resource.memMB * fraction),
        capabilities=dict(resource.capabilities),
        devices={name: count for name, count in devices.items() if count},
        tags=dict(resource.tags),
    )
