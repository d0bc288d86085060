"""The liveness lock: held by a supervisor for its lifetime, so that liveness is never a matter of pids."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from torchx.machine import files


def acquire(path: Path) -> int | None:
    """Takes the lock for good.

    Returns:
        A descriptor that holds the lock until it and its copies in child processes are closed; None when
        someone else holds it.

    Raises:
        OSError: it is not a regular file of this user, or cannot be opened.
    """
    try:
        descriptor = files.open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT):
            raise
        descriptor = files.open_file(path)  # one that is there can be held all the same
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool:
    """Tells whether a supervisor lives; a lock file that is not there is held by nobody."""
    return not wait_free(path, 0.0)


def wait_free(path: Path, timeout: float | None = None) -> bool:
    """Blocks until nobody holds the lock.

    Without a timeout the kernel wakes the caller at the moment the lock is given back.

    Args:
        path: the lock file.
        timeout: seconds to wait at most; None for ever.

    Returns:
        False when the time was up before.

    Raises:
        OSError: it is not a regular file of this user, or cannot be opened.
    """
    try:
        # shared: those who ask do not stand in each other's way
        descriptor = files.open_file(path)
    except FileNotFoundError:
        return True
    try:
        if timeout is None:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return True
        end = time.monotonic() + timeout
        pause = 0.002
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                left = end - time.monotonic()
                if left <= 0:
                    return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, 0.025)
    finally:
        os.close(descriptor)
