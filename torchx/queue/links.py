"""Connections between keepers and other processes, which send lines."""

from __future__ import annotations

import contextlib
import math
import socket

from torchx.queue import keepers
from torchx.queue.order import Waiter


class Link:
    """A connection to another process, which sends lines.

    Args:
        connection: the connection.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, keepers.LONGEST // 4)
        self.connection = connection
        self.uid = keepers.user_of(connection)
        self.subscribed = False
        self.waiters: list[Waiter] = []
        self.asked_at = -math.inf  # monotonic time of the last request for a report
        self.is_silent = False  # whether that has no answer yet
        self._data = bytearray()

    def lines(self) -> list[bytes] | None:
        """Returns the complete lines that have arrived; None at the end of the connection."""
        try:
            while data := self.connection.recv(1 << 16):
                self._data += data
                if len(self._data) > keepers.LONGEST:
                    return None
        except BlockingIOError:
            *lines, rest = bytes(self._data).split(b"\n")
            self._data = bytearray(rest)
            return [line + b"\n" for line in lines]
        except OSError:
            pass
        return None

    def send(self, data: bytes) -> bool:
        """Sends data; returns False if the other side does not take all of it."""
        try:
            return self.connection.send(data) == len(data)
        except OSError:
            return False
