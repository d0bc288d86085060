"""Marks by which processes of a job are found again: an environment variable, and an inherited limit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from torchx.machine.processes import Process, table


def marked(name: str, value: str) -> list[Process]:
    """Returns this user's processes that were started with this variable in their environment."""
    mark = f"{name}={value}".encode("utf-8", "surrogateescape")
    others = (entry.process for entry in table() if entry.process.pid != os.getpid())
    return [process for process in others if mark in environment_of(process)]


def mark_limit(mark: int) -> bool:
    """Marks this process and all that it will start, by a limit that limits nothing.

    A program that empties its environment and leaves its session and its parent keeps its limits, and so
    it can still be known by :func:`limit_marked`. The limit is that of the time that a real-time process may
    run without a pause (``RLIMIT_RTTIME``); the mark makes it more than a thousand years.

    Args:
        mark: as :func:`mark_of` makes it.

    Returns:
        False where the limit is in use already, or the system has no such limit.
    """
    import resource  # only a supervisor needs it

    try:
        _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
        if hard != resource.RLIM_INFINITY:
            return False
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hard))
    except (AttributeError, OSError, ValueError, OverflowError):
        return False
    return True


def mark_of(name: str) -> int:
    """Returns a number for :func:`mark_limit` that no other name is likely to have.

    >>> mark_of("a") == mark_of("a") != mark_of("b"), mark_of("a").bit_length()
    (True, 63)
    """
    number = 0xCBF29CE484222325  # FNV-1a; to load a library of digests takes longer
    for byte in name.encode("utf-8", "surrogateescape"):
        number = ((number ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return 1 << 62 | number >> 2


def limit_marked(mark: int) -> list[Process]:
    """Returns this user's processes that have a mark of :func:`mark_limit`, this process left out."""
    import resource  # only for what a dead supervisor has left

    found = []
    for entry in table() if hasattr(resource, "RLIMIT_RTTIME") else ():
        with contextlib.suppress(OSError):
            soft, _ = resource.prlimit(entry.process.pid, resource.RLIMIT_RTTIME)
            if soft == mark and entry.process.pid != os.getpid():
                found.append(entry.process)
    return found


def environment_of(process: Process) -> Collection[bytes]:
    """Returns what a process was started with as ``NAME=value``; nothing when that is not for us to see."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return ()  # it ended meanwhile, or belongs to another user
