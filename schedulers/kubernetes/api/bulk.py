"""Thousands of small reads over a few connections.

The general client spends about 0.3 ms of CPU time on a request, ten times as much as the request needs: on
pools, URLs, and headers that are not read. Here, a connection that the client has opened, with its
certificates and proxies, is used again. Everything unusual is left to the client.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from torchx.schedulers.kubernetes.api.errors import response_error
from torchx.version import __version__

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.schedulers.kubernetes.api.client import Cluster

BLOCK = 1 << 16
"""Bytes that are read at the same time, and the maximum size of headers and of an error response."""


class BulkReader:
    """Reads resources of a cluster; may be used by several threads.

    It opens as many connections as there are responses at the same time.

    Args:
        cluster: the cluster.
        silence: seconds without data after which a read fails.
    """

    def __init__(self, cluster: Cluster, silence: float) -> None:
        self._cluster, self._silence = cluster, silence
        self._idle: list[Any] = []
        host = cluster.host.partition("://")[2]
        self._host, _, prefix = host.partition("/")
        self._prefix = f"/{prefix}" if prefix else ""

    def close(self) -> None:
        """Closes the connections; responses that are still read keep theirs."""
        while self._idle:
            self._idle.pop().close()

    def stream(self, path: str, query: Data) -> Any:
        """Requests a resource.

        Args:
            path: path of the resource.
            query: query parameters.

        Returns:
            A response with ``stream(size)``, which yields its data, and ``close()``.

        Raises:
            ClusterError: the request was rejected or timed out.
        """
        try:
            sock = self._idle.pop()
        except IndexError:
            return self._first(path, query)
        try:
            return self._send(sock, path, query)
        except TimeoutError as error:
            sock.close()
            raise self._cluster.no_answer(error) from None
        except (_NotReusableError, OSError):
            # such as a connection that the cluster has closed since
            sock.close()
            return self._first(path, query)

    def put_back(self, sock: Any) -> None:
        """Makes a connection available to the next request, once its response was read completely."""
        self._idle.append(sock)

    def _first(self, path: str, query: Data) -> Any:
        """Sends a request with the client, and takes over the connection."""
        response = self._cluster.stream(path, query, silence=self._silence)
        connection = response.connection
        sock = getattr(connection, "sock", None)
        if sock is None or self._cluster.is_relayed:
            return response
        connection.sock = None  # the client opens another one when it uses this connection again
        return _FirstResponse(self, response, sock)

    def _send(self, sock: Any, path: str, query: Data) -> _Response:
        lines = [
            f"GET {self._prefix}{path}?{_encoded(tuple(query.items()))} HTTP/1.1",
            f"Host: {self._host}",
            "Accept: application/json, */*",
            f"User-Agent: torchx/{__version__}",
            *(f"{key}: {value}" for key, value in self._cluster.auth_headers().items()),
        ]
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        response = _Response(self, sock)
        if response.status >= 400:
            body = bytearray()
            for data in response.stream(BLOCK):
                body += data
                if len(body) > BLOCK:
                    break
            response.close()
            raise response_error("GET", path, response.status, bytes(body), {})
        return response


class _NotReusableError(Exception):
    """The response is one that the client has to read."""


class _FirstResponse:
    """A response of the client, whose connection is used again."""

    def __init__(self, reader: BulkReader, response: Any, sock: Any) -> None:
        self._reader, self._response, self._sock = reader, response, sock

    def stream(self, size: int) -> Iterator[bytes]:
        """Yields the data."""
        yield from self._response.stream(size)
        sock, self._sock = self._sock, None
        self._reader.put_back(sock)

    def close(self) -> None:
        """Closes the connection, unless the response was read completely."""
        self._response.close()
        if self._sock is not None:
            self._sock.close()


class _Response:
    """A response on a connection: its headers are read.

    Args:
        reader: receives the connection after the last byte.
        sock: the connection.

    Attributes:
        status: the HTTP status.

    Raises:
        _NotReusableError: it is not a response of HTTP/1.1 with a known end.
        OSError: the connection failed.
    """

    def __init__(self, reader: BulkReader, sock: Any) -> None:
        self._reader, self._sock = reader, sock
        self._rest = b""
        head, end, rest = b"", b"", b""
        while not end:
            if len(head) > BLOCK:
                raise _NotReusableError
            head, end, rest = (head + self._received()).partition(b"\r\n\r\n")
        self._rest = rest
        first, *lines = head.split(b"\r\n")
        headers = dict(line.lower().split(b":", 1) for line in lines if b":" in line)
        length = headers.get(b"content-length", b"").strip()
        self._chunked = headers.get(b"transfer-encoding", b"").strip() == b"chunked"
        if not (first.startswith(b"HTTP/1.1 ") and first[9:12].isdigit()):
            raise _NotReusableError
        if b"content-encoding" in headers or not (self._chunked or length.isdigit()):
            raise _NotReusableError
        self.status = int(first[9:12])
        if self.status < 200 or 300 <= self.status < 400 or self.status == 204:
            raise _NotReusableError
        self._length = int(length or b"0")
        self._closes = headers.get(b"connection", b"").strip() == b"close"

    def stream(self, size: int) -> Iterator[bytes]:
        """Yields the data; the size of its parts is that of the connection's.

        Raises:
            OSError: the connection failed, or the response is malformed.
        """
        if self._chunked:
            yield from self._chunks()
        else:
            yield from self._counted(self._length)
        sock, self._sock = self._sock, None
        if self._closes or self._rest:
            sock.close()
        else:
            self._reader.put_back(sock)

    def close(self) -> None:
        """Closes the connection, unless the response was read completely."""
        if self._sock is not None:
            self._sock.close()

    def _received(self) -> bytes:
        data: bytes = self._sock.recv(BLOCK)
        if not data:
            raise ConnectionResetError
        return data

    def _counted(self, length: int) -> Iterator[bytes]:
        """Yields a number of bytes."""
        while length:
            data = self._rest or self._received()
            part, self._rest = data[:length], data[length:]
            length -= len(part)
            yield part

    def _chunks(self) -> Iterator[bytes]:
        while size := self._size():
            yield from self._counted(size)
            if self._line():
                raise ConnectionResetError
        while self._line():
            pass  # trailers

    def _size(self) -> int:
        """Returns the size of the next chunk."""
        text = self._line().partition(b";")[0].strip()
        if not text.isalnum():  # int() accepts signs
            raise ConnectionResetError
        try:
            return int(text, 16)
        except ValueError:
            raise ConnectionResetError from None

    def _line(self) -> bytes:
        """Returns the next line of the framing, without its end."""
        while True:
            line, end, rest = self._rest.partition(b"\r\n")
            if end:
                self._rest = rest
                return line
            if len(self._rest) > BLOCK:
                raise ConnectionResetError
            self._rest += self._received()


@functools.lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, Any], ...]) -> str:
    return urlencode(query)
