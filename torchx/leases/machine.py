"""Leases of processors and memory: units that jobs reserve on request.

A processor is a unit, and so is a part of the memory, of the same size for all users of the machine. Leases
are a count: they bind no process to a processor, and limit no memory.
"""

from __future__ import annotations

import os

from torchx.machine import cgroups

PREFIXES = ("cpu-", "memory-")
"""The beginnings of the names of these leases."""

SMALLEST_UNIT = 1 << 28
"""Minimum bytes of a unit of memory."""

MOST_UNITS = 128
"""Maximum number of units of the memory of a machine; a lease needs a descriptor for each."""


def usable_cpus() -> float:
    """Returns the processors that this process may use, possibly a fraction.

    The affinity of this process and the limits of its control groups restrict them.
    """
    limit = cgroups.own_limits().cpu
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    if limit is None:
        return allowed
    return min(allowed, limit)


def usable_memory() -> int:
    """Returns the memory that this process may use, in bytes, within the limits of its control groups."""
    limit = cgroups.own_limits().memory
    if limit is None:
        return _memory()
    return min(limit, _memory())


def cpu_names() -> list[str]:
    """Returns the names of the leases of the processors that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return [f"cpu-{number}" for number in allowed[: max(1, int(usable_cpus()))]]


def memory_names() -> list[str]:
    """Returns the names of the leases of the memory that this process may use, one for each unit."""
    return [f"memory-{number}" for number in range(usable_memory() // memory_unit())]


def memory_unit() -> int:
    """Returns the size of a unit of memory in bytes, a power of two."""
    unit = SMALLEST_UNIT
    while unit * MOST_UNITS < _memory():
        unit *= 2
    return unit


def units(memory: int) -> int:
    """Returns the number of units that contain this many bytes of memory."""
    return -(-memory // memory_unit())


def _memory() -> int:
    """Returns the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
