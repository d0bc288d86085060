"""Marks that identify the processes of a job: an environment variable and an inherited resource limit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from torchx.lazy import lazy_imports
from torchx.machine.processes import Process, table

with lazy_imports:
    import resource


def marked(name: str, value: str) -> list[Process]:
    """Returns this user's processes that were started with this variable in their environment."""
    mark = f"{name}={value}".encode("utf-8", "surrogateescape")
    others = (entry.process for entry in table() if entry.process.pid != os.getpid())
    return [process for process in others if mark in environment_of(process)]


def mark_limit(mark: int) -> bool:
    """Marks this process and its future descendants by a resource limit without effect.

    A program that clears its environment and leaves its session and its parent keeps its limits, so
    :func:`limit_marked` still finds it. The limit is ``RLIMIT_RTTIME``, the time that a real-time process may
    run without blocking; the mark sets it to more than a thousand years.

    Args:
        mark: a number from :func:`mark_of`.

    Returns:
        False if the limit is already in use, or is not supported.
    """
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        if hard != resource.RLIM_INFINITY:
            return False
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))
    except (AttributeError, OSError, ValueError, OverflowError):
        return False
    return True


def mark_of(name: str) -> int:
    """Returns the mark of a name for :func:`mark_limit`, a 63-bit hash.

    >>> mark_of("a") == mark_of("a") != mark_of("b"), mark_of("a").bit_length()
    (True, 63)
    """
    number = 0xCBF29CE484222325  # FNV-1a; importing hashlib takes longer
    for byte in name.encode("utf-8", "surrogateescape"):
        number = ((number ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return 1 << 62 | number >> 2


def limit_marked(mark: int) -> list[Process]:
    """Returns this user's other processes that have a mark of :func:`mark_limit`."""
    found = []
    for entry in table() if hasattr(resource, "RLIMIT_RTTIME") else ():
        with contextlib.suppress(OSError):
            soft, _ = resource.prlimit(entry.process.pid, resource.RLIMIT_RTTIME)
            if soft == mark and entry.process.pid != os.getpid():
                found.append(entry.process)
    return found


def environment_of(process: Process) -> Collection[bytes]:
    """Returns the initial environment of a process as ``NAME=value``; empty if it is not accessible."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return ()  # it has ended, or belongs to another user
