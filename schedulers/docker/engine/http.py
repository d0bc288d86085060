"""The form of requests and answers between this program and an engine."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


def keep_alive(connection: socket.socket) -> None:
    """Lets a connection end when the other machine is gone: streams wait for long without a byte."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def plain_request(method: str, url: str, headers: Mapping[str, str]) -> bytes:
    """Returns a request in the older HTTP: its answer has no lengths of its pieces in between."""
    lines = [f"{method} {url} HTTP/1.0", "Host: docker", *(f"{k}: {v}" for k, v in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def status_of(head: bytes) -> int:
    """Returns the status in the head of an answer.

    Raises:
        OSError: it is none of HTTP.
    """
    parts = head.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/") or not parts[1].isdigit():
        raise ConnectionAbortedError("its answer is not HTTP")
    return int(parts[1])


def read_all(response: http.client.HTTPResponse, patience: float | None) -> bytes:
    """Returns the body of an answer; one that comes drop by drop has as long again as its beginning."""
    end = None if patience is None else time.monotonic() + patience
    pieces: list[bytes] = []
    while piece := response.read1(1 << 18):
        pieces.append(piece)
        if end is not None and time.monotonic() > end:
            raise TimeoutError
    return b"".join(pieces)


def receive(connection: socket.socket, size: int) -> tuple[bytes, bool]:
    """Returns what has come on a connection that does not block, and whether that was the end of it."""
    data = b""
    # of an encrypted connection, what was decrypted already wakes nobody who waits for the socket
    while len(data) < size or getattr(connection, "pending", int)():
        try:
            more = connection.recv(size)
        except OSError as error:
            # the second is the first on an encrypted connection; its module is not loaded for its name alone
            waits = isinstance(error, BlockingIOError) or type(error).__name__ == "SSLWantReadError"
            return data, not waits
        if not more:
            return data, True
        data += more
    return data, False


def reason(data: bytes) -> str:
    """Returns the reason in an answer of the engine, on one line."""
    text = data.decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["message"])
    return " ".join(text.split()) or "no reason was given"
