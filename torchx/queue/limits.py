"""The limit of open files of a keeper, which has one lock open for each waiting job."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

RESERVED = 16
"""Small descriptors that are kept free for the start of a process with the limit of the user."""

_low: list[int] = []
_users: tuple[int, int] | None = None


def raise_limit() -> None:
    """Raises the soft limit of open files to the hard one; jobs keep that of the user."""
    global _users  # of this process
    _users = resource.getrlimit(resource.RLIMIT_NOFILE)
    _reserve()
    resource.setrlimit(resource.RLIMIT_NOFILE, (_users[1], _users[1]))


@contextlib.contextmanager
def of_user() -> Iterator[None]:
    """Restores the limit of the user, for the processes that are started in the block."""
    if _users is None:
        yield
        return
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    while _low:
        os.close(_low.pop())
    resource.setrlimit(resource.RLIMIT_NOFILE, _users)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)
        _reserve()


def _reserve() -> None:
    _low.extend(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(RESERVED))
