"""Follows logs of containers: Podman answers such a request only when there is output."""

from __future__ import annotations

import socket

from torchx.json_limits import Data
from torchx.machine.polling import readable
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.http import closed_on_error, reason, status_of

HEAD_WITHIN = 0.2
"""Seconds to wait for the head of a response; Docker sends it immediately."""
HEAD_END = b"\r\n\r\n"


class Following:
    """A non-blocking connection with a followed log.

    Args:
        connection: the connection, on which the response arrives.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._head: bytes | None = b""
        connection.setblocking(False)

    def fileno(self) -> int:
        """Returns the descriptor to poll."""
        return self._connection.fileno()

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def pending(self) -> int:
        """Returns the number of bytes that were received, but are not reported by polling."""
        pending: int = getattr(self._connection, "pending", int)()
        return pending

    def recv(self, size: int) -> bytes:
        """Returns received output, or nothing at its end.

        Raises:
            BlockingIOError: no output has arrived.
            EngineError: the engine rejects the request.
            OSError: the response is not HTTP.
        """
        data = self._connection.recv(size)
        while self._head is not None and data:
            self._head += data
            head, found, rest = self._head.partition(HEAD_END)
            if found:
                self._head = None
                if status_of(head) >= 400:
                    self._connection.close()
                    raise EngineError(status_of(head), reason(rest))
                if rest:
                    return rest
            data = self._connection.recv(size)
        return data


def follow(engine: Engine, container: str, parameters: Data) -> tuple[Following, bytes]:
    """Returns a connection that follows the log of a container, and the bytes received so far.

    Args:
        engine: the engine.
        container: the id of the container.
        parameters: the query.

    Raises:
        EngineError: the engine rejects the request.
        NoEngineError: the engine does not answer.
    """
    connection = engine.send(f"/containers/{container}/logs", {**parameters, "follow": 1})
    with closed_on_error(connection):
        following = Following(connection)
        if not following.pending() and not readable([connection], HEAD_WITHIN):
            return following, b""
        try:
            return following, following.recv(1 << 16)
        except OSError as error:
            if isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError":
                return following, b""
            raise engine.unreachable(error) from error
