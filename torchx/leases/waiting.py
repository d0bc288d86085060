"""Wait until the holder of a lease ends; the kernel wakes the caller."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.lazy import lazy_imports
from torchx.leases.holders import LONGEST_ANSWER, connect, names_in_use
from torchx.machine.polling import readable

with lazy_imports:
    import select
    import socket

CHECK_INTERVAL = 0.25
"""Seconds between two checks of a holder that accepts no connection; no holder of this package is one."""


class Watch:
    """Connections to the holders of leases, which end when the holders do.

    Args:
        names: the names of the leases.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._poll = select.epoll()
        self._connections: dict[int, tuple[str, socket.socket, int]] = {}
        self._without: set[str] = set()
        for name in dict.fromkeys(names):
            connection = connect(name)
            if connection is None:  # free, or a holder that is not a process of this package
                self._without.add(name)
            else:
                self._connections[connection.fileno()] = name, connection, 0
                self._poll.register(connection, select.EPOLLIN)

    def fileno(self) -> int:
        """Returns a descriptor that is readable when :meth:`ended` has a reason to be called."""
        return self._poll.fileno()

    @property
    def needs_checks(self) -> bool:
        """Whether a holder accepts no connection, so that :meth:`ended` must be called from time to time."""
        return bool(self._without)

    def ended(self) -> set[str]:
        """Returns the names of the leases whose holders have ended since the last call, or that are free."""
        ended = set()
        for descriptor, _ in self._poll.poll(0):
            name, connection, size = self._connections[descriptor]
            try:
                data = connection.recv(LONGEST_ANSWER)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            size += len(data)
            self._connections[descriptor] = name, connection, size
            if data and size <= LONGEST_ANSWER:
                continue  # its answer, which is not needed here
            self._poll.unregister(descriptor)
            self._connections.pop(descriptor)[1].close()
            ended.add(name) if not data else self._without.add(name)
        if self._without:
            free = self._without - names_in_use()
            self._without -= free
            ended |= free
        return ended

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until :meth:`ended` has a reason to be called.

        Args:
            timeout: maximum seconds to wait; None for no limit.
        """
        if self._without:
            if timeout is None:
                timeout = CHECK_INTERVAL
            else:
                timeout = min(timeout, CHECK_INTERVAL)
        readable([self._poll], timeout)

    def close(self) -> None:
        """Closes the connections."""
        for _, connection, _ in self._connections.values():
            connection.close()
        self._connections = {}
        self._poll.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
