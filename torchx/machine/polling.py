"""Wait for descriptors; unlike ``select``, also for those above 1,023."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from torchx.lazy import lazy_imports

with lazy_imports:
    import select


_LONGEST = 1e6
"""Maximum timeout in seconds; poll(2) counts milliseconds in 31 bits."""


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
    return list(ready(dict.fromkeys(files, select.POLLIN), timeout))


def ready(masks: Mapping[int | HasDescriptor, int], timeout: float | None = None) -> dict[int, int]:
    """Blocks until one of the requested events, an error or a hang-up.

    Args:
        masks: the requested events of descriptors, files or sockets, such as ``select.POLLOUT``.
        timeout: maximum seconds to wait; None for no limit.

    Returns:
        The events by descriptor; empty after the timeout.
    """
    poll = select.poll()
    for file, mask in masks.items():
        poll.register(file, mask)
    if timeout is not None:
        timeout = min(max(timeout, 0.0), _LONGEST) * 1000
    return dict(poll.poll(timeout))
