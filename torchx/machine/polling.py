"""Wait for descriptors; unlike ``select``, also for those above 1,023."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torchx.lazy import lazy_imports

with lazy_imports:
    import select


class HasDescriptor(Protocol):
    """A file or a socket."""

    def fileno(self) -> int:
        """Returns its descriptor."""


def readable(files: Iterable[int | HasDescriptor], timeout: float | None = None) -> list[int]:
    """Blocks until data can be read from a file, or its other side has closed it.

    Args:
        files: descriptors, files or sockets.
        timeout: maximum seconds to wait; None for no limit.

    Returns:
        The descriptors of these files; empty after the timeout.
    """
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    if timeout is not None:
        timeout *= 1000
    return [descriptor for descriptor, _ in poll.poll(timeout)]
