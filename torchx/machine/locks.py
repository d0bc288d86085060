"""Liveness locks: a supervisor holds its lock for its lifetime, so that liveness does not depend on pids."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchx.machine import files


def acquire(path: Path) -> int | None:
    """Takes the lock without blocking.

    Returns:
        A descriptor that holds the lock until it and its copies in child processes are closed; None if
        another process holds it.

    Raises:
        OSError: it is not a regular file of this user, or cannot be opened.
    """
    try:
        descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
        descriptor = files.open_file(path)  # an existing file can be locked without writing
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def exclusive(path: Path, within: float | None = None) -> Iterator[None]:
    """Holds a lock that short sections of code share; blocks until it is free, and creates its folder.

    Args:
        path: the lock file.
        within: maximum seconds to wait, after which the section runs without the lock, as a stopped process
            may hold it; None for no limit.

    Raises:
        OSError: it is not a regular file of this user, or cannot be opened.
    """
    files.make_folder(path.parent)
    descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(descriptor, fcntl.LOCK_EX, within)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Returns True if a process holds the lock; a missing lock file is free."""
    return not wait_free(path, 0.0)


def wait_free(path: Path, timeout: float | None = None) -> bool:
    """Blocks until no process holds the lock.

    Args:
        path: the lock file.
        timeout: maximum seconds to wait; None for no limit.

    Returns:
        False if it timed out.

    Raises:
        OSError: it is not a regular file of this user, or cannot be opened.
    """
    try:
        # the lock is taken as shared below, so that waiting processes do not block each other
        descriptor = files.open_file(path)
    except FileNotFoundError:
        return True
    try:
        return _lock(descriptor, fcntl.LOCK_SH, timeout)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, mode: int, timeout: float | None) -> bool:
    """Locks a file; returns False if it timed out.

    Without a timeout, the kernel wakes the caller as soon as the lock is released.
    """
    if timeout is None:
        fcntl.flock(descriptor, mode)
        return True
    end = time.monotonic() + timeout
    pause = 0.002
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            left = end - time.monotonic()
            if left <= 0:
                return False
        time.sleep(min(pause, left))
        pause = min(pause * 2, 0.025)
