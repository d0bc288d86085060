"""Answers the processes that connect to the leases of a supervisor."""

from __future__ import annotations

import json
import time
from contextlib import suppress

from torchx.lazy import lazy_imports
from torchx.leases.holders import Leases
from torchx.machine import processes, socket_names

with lazy_imports:
    import select
    import socket
    import threading

CONNECTIONS_PER_USER = 64
"""Connections kept for each user; a further one ends that user's oldest."""


class Reception:
    """Accepts connections to leases, sends the id of the application, and keeps them until either side ends.

    Args:
        leases: the leases; this process becomes the one that the kernel names as their holder.
        app: the id of the application, visible to all users.
        ends: the latest time of its end, seconds since the epoch; None if it has no time limit.
    """

    def __init__(self, leases: Leases, app: str, ends: float | None = None) -> None:
        leases.listen()
        self._leases = leases
        # the system clock may be changed: the time since the boot of the machine counts
        answer = {"app": app, "ends": ends}
        if ends is not None:
            answer["ends_at"] = ends - time.time() + processes.uptime()
        self._answer = json.dumps(answer).encode() + b"\n"
        self._listeners = {held.fileno(): held for held in leases.sockets}
        self._connections: dict[int, tuple[int, socket.socket]] = {}
        self._epoll = select.epoll()
        for listener in self._listeners.values():
            listener.setblocking(False)
            self._epoll.register(listener, select.EPOLLIN)

    def fileno(self) -> int:
        """Returns a descriptor that is readable if :meth:`serve` has work."""
        return self._epoll.fileno()

    def serve(self, *, block: bool = False) -> None:
        """Accepts the waiting connections, and closes those whose other side has ended.

        Args:
            block: wait for work first.
        """
        for descriptor, _ in self._epoll.poll(-1 if block else 0):
            listener = self._listeners.get(descriptor)
            if listener is not None:
                self._accept(listener)
            elif descriptor in self._connections:
                self._drop(descriptor)

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # too many open files
            if self._connections:
                self._drop(next(iter(self._connections)))
            else:
                self._epoll.unregister(listener)
            return
        connection.setblocking(False)
        uid = socket_names.peer_of(connection)[1]
        with suppress(OSError):
            connection.send(self._answer)
        same = [number for number, (other, _) in self._connections.items() if other == uid]
        if len(same) >= CONNECTIONS_PER_USER:
            self._drop(same[0])
        self._connections[connection.fileno()] = uid, connection
        self._epoll.register(connection, select.EPOLLIN | select.EPOLLRDHUP)

    def _drop(self, descriptor: int) -> None:
        _, connection = self._connections.pop(descriptor)
        self._epoll.unregister(descriptor)
        connection.close()


def answer(leases: Leases, app: str, ends: float | None = None) -> None:
    """Makes this process the holder of its leases, and answers in a thread; without leases it starts none.

    Args:
        leases: the leases.
        app: the id of the application, visible to all users.
        ends: the latest time of its end, seconds since the epoch; None if it has no time limit.
    """
    if leases.names:
        reception = Reception(leases, app, ends)
        threading.Thread(target=_serve, args=(reception,), name="leases", daemon=True).start()


def _serve(reception: Reception) -> None:
    while True:
        reception.serve(block=True)
