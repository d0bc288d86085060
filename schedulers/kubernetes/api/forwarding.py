"""Forwards connections over a websocket of a cluster."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

from torchx.schedulers.kubernetes.api.errors import ClusterError

BINARY = 2
CLOSING = 8
"""Kinds of messages of a websocket."""
DATA, FORWARD_ERROR = 0, 1
"""Channels: the first byte of each message."""
FORWARD_AT_A_TIME = 1 << 15
IDLE_AFTER_END = 60.0
"""Seconds without data after which a connection is closed whose client has ended its direction."""


class Forward:
    """Copies between a websocket and a socket, in two threads.

    The protocol cannot end one direction alone: after the end of the client's data, the connection remains
    until the server ends it or sends nothing more.

    Args:
        connection: the websocket.
        end: the socket; closed at the end.
    """

    def __init__(self, connection: Any, end: socket.socket) -> None:
        self._connection, self._end = connection, end
        self._last = 0.0  # time of the last data after the end of the client's; 0 before

    def begin(self, port: str) -> None:
        """Waits for the answer of the cluster, and starts.

        Raises:
            ClusterError: the cluster rejects the port or does not answer.
        """
        seen: set[int] = set()
        while len(seen) < 2:  # each channel begins with the number of the port
            channel, data = self._receive()
            if channel < 0 or (channel == FORWARD_ERROR and channel in seen):
                reason = data.decode("utf-8", "replace").strip()[:500]
                raise ClusterError(f"{port} cannot be reached: {reason}")
            seen.add(channel)
        for work in (self._download, self._upload):
            threading.Thread(target=work, name="port forward", daemon=True).start()

    def _receive(self) -> tuple[int, bytes]:
        """Returns a channel and its data; the channel is -1 at the end."""
        try:
            while True:
                kind, frame = self._connection.recv_data_frame(True)
                if kind == CLOSING:
                    return -1, b"the connection was closed"
                if frame.data:
                    return frame.data[0], frame.data[1:]
        except websocket_failures() as error:
            return -1, str(error).encode()

    def _download(self) -> None:
        """Copies from the cluster until the connection ends or fails."""
        with suppress(OSError):
            while True:
                channel, data = self._receive()
                if channel != DATA:
                    break
                if self._last:
                    self._last = time.monotonic()
                self._end.sendall(data)
        self.close()

    def _upload(self) -> None:
        """Copies to the cluster."""
        with suppress(*websocket_failures()):
            while data := self._end.recv(FORWARD_AT_A_TIME):
                self._connection.send(bytes([DATA]) + data, BINARY)
            self._last = time.monotonic()
            while (left := self._last + IDLE_AFTER_END - time.monotonic()) > 0:
                time.sleep(min(left, 1.0))
                if self._end.fileno() < 0:
                    return
        self.close()

    def close(self) -> None:
        """Ends both."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        self._connection.shutdown()


def websocket_failures() -> tuple[type[Exception], ...]:
    """Returns the errors of a broken websocket."""
    from websocket import WebSocketException

    return WebSocketException, OSError
