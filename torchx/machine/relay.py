"""Forward local connections to a port of a replica."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from torchx.errors import StateError
from torchx.machine import threads

CONNECT_WITHIN = 10.0
"""Seconds that a connection may take."""
ACCEPT_AFTER = 0.1
"""Seconds after which connections are accepted again that this process had no room for."""
AT_A_TIME = 1 << 16


def connect(host: str, port: int, replica: str) -> socket.socket:
    """Returns a connection to a port.

    Args:
        host: its host.
        port: its number.
        replica: the replica, for the message.

    Raises:
        StateError: nothing listens there, or it cannot be reached.
    """
    try:
        connection = socket.create_connection((host, port), CONNECT_WITHIN)
    except OSError as error:
        raise unreachable(port, replica, error) from error
    connection.settimeout(None)
    return connection


def unreachable(port: int, replica: str, error: OSError) -> StateError:
    """Returns the error for a port that cannot be connected to."""
    return StateError(f"port {port} of {replica} cannot be reached: {error.strerror or error}")


class Relay:
    """A listening local port; each connection to it is forwarded.

    Args:
        connector: opens a connection to the port of the replica.
        port: the local port; 0 for a free one.
        report: called with the message of a failed connection.

    Attributes:
        address: the local address, ``host:port``.

    Raises:
        StateError: the local port is in use.
    """

    def __init__(
        self, connector: Callable[[], socket.socket], port: int, report: Callable[[StateError], None]
    ) -> None:
        self._connector, self._report = connector, report
        self._closed = threading.Event()
        try:
            self._server = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise StateError(
                f"cannot listen on local port {port}: {os.strerror(error.errno or 0)}",
                hint="give another one, or none",
            ) from error
        host, number = self._server.getsockname()
        self.address = f"{host}:{number}"
        self._thread = threading.Thread(target=self._accept, name="port", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening; open connections end with the process."""
        self._closed.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # too many open files, or closed
                if self._closed.wait(ACCEPT_AFTER):
                    return
                continue
            if threads.begin(self._serve, client, name="port client") is None:
                client.close()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                target = self._connector()
            except StateError as error:
                self._report(error)
                return
            with target:
                back = threads.begin(_pump, target, client)
                if back is not None:
                    _pump(client, target)
                    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source ends, and then ends the target's input only: the other direction continues."""
    try:
        while data := source.recv(AT_A_TIME):
            target.sendall(data)
    except OSError:
        with suppress(OSError):  # broken: the other direction ends too
            source.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        return
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
