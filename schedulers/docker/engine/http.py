"""HTTP requests to an engine, and its responses."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from torchx.machine.polling import readable
from torchx.scheduling.pace import deadline


@contextmanager
def closed_on_error(connection: Any) -> Iterator[None]:
    """Closes a connection if the block fails."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def keep_alive(connection: socket.socket) -> None:
    """Turns on TCP keep-alive, so that an idle stream ends if the other machine is down."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def plain_request(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    """Returns an HTTP/1.0 request, so that the response is not chunked."""
    lines = [f"{method} {url} HTTP/1.0", "Host: docker", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status_of(head: bytes) -> int:
    """Returns the status in the head of a response.

    Raises:
        OSError: it is not HTTP.
    """
    parts = head.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise ConnectionAbortedError("the response is not HTTP")
    return int(parts[1])


def read_all(response: http.client.HTTPResponse, patience: float | None) -> bytes:
    """Returns the body of a response.

    Raises:
        TimeoutError: the body took longer than ``patience`` seconds.
    """
    end = deadline(patience)
    pieces: list[bytes] = []
    while piece := response.read1(1 << 18):
        pieces.append(piece)
        if time.monotonic() > end:
            raise TimeoutError
    response.close()  # its connection can send the next request
    return b"".join(pieces)


class Lines:
    """The lines of a response; an interrupted iteration can be continued.

    Args:
        connection: the connection on which the request was sent.
        check: called with the response before its first line; may raise an error.
    """

    def __init__(
        self, connection: http.client.HTTPConnection, check: Callable[[http.client.HTTPResponse], None]
    ) -> None:
        self._connection, self._check = connection, check
        self._response: http.client.HTTPResponse | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._response is None:
            # an interrupt here loses nothing, unlike one within a response
            readable([self._connection.sock])
            self._response = self._connection.getresponse()
            self._check(self._response)
        return next(self._response)


class Receives(Protocol):
    """A connection that data is received on."""

    def recv(self, size: int, /) -> bytes:
        """Returns received data, or nothing at its end."""


def receive(connection: Receives, size: int) -> tuple[bytes, bool]:
    """Returns the data received on a non-blocking connection, and True if the peer has closed it."""
    data = b""
    # polling the socket does not report data that TLS has already decrypted
    while len(data) < size or getattr(connection, "pending", int)():
        try:
            more = connection.recv(size)
        except OSError as error:
            # SSLWantReadError by name, to not import ssl
            waits = isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError"
            return data, not waits
        if not more:
            return data, True
        data += more
    return data, False


def reason(data: bytes) -> str:
    """Returns the message of an error response, on one line."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split()) or "no reason was given"
