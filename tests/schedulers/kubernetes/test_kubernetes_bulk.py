"""Many reads over one connection: responses of all forms, connections that end, and rejected requests."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from torchx.schedulers.kubernetes.api.bulk import BulkReader
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: now\r\n\r\nabc"
CLOSED = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = CHUNKED + b"2;x=y\r\nab\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
OLD = b"HTTP/1.0 200 OK\r\n\r\nold"
MISSING = b'HTTP/1.1 404 Not Found\r\nContent-Length: 26\r\n\r\n{"message": "p not found"}'
HANG_UP = b""


class Server:
    """Sends the given responses, those of one connection after the other, byte by byte if requested."""

    def __init__(self, connections: Sequence[Sequence[bytes]], *, in_bytes: bool = False) -> None:
        self.requests: list[list[bytes]] = []
        self._in_bytes = in_bytes
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(connections,))
        self._thread.start()

    def _run(self, connections: Sequence[Sequence[bytes]]) -> None:
        for responses in connections:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # fewer connections than expected
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.requests.append([])
                self._answer(connection, responses)

    def _answer(self, connection: socket.socket, responses: Sequence[bytes]) -> None:
        for response in responses:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                data = connection.recv(1 << 16)
                if not data:
                    return
                request += data
            self.requests[-1].append(request)
            parts = [bytes([byte]) for byte in response] if self._in_bytes else [response]
            for part in parts:
                connection.sendall(part)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def reading(
    folder: Path, *connections: Sequence[bytes], in_bytes: bool = False
) -> Iterator[tuple[BulkReader, Server]]:
    server = Server(connections, in_bytes=in_bytes)
    config = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": f"http://{server.address}/prefix"}}],
        "users": [{"name": "x", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(config), encoding="utf-8")
    cluster = Cluster(kubeconfig=str(folder / "kubeconfig"))
    reader = BulkReader(cluster, 60.0)
    try:
        yield reader, server
    finally:
        reader.close()
        cluster.close()
        server.close()


def read(reader: BulkReader) -> bytes:
    response = reader.stream("/api/v1/pods/p/log", {"tailLines": 5})
    try:
        return b"".join(response.stream(1 << 16))
    finally:
        response.close()


@pytest.mark.parametrize("in_bytes", [False, True])
def test_one_connection_serves_many_requests(tmp_path: Path, in_bytes: bool) -> None:
    empty = CHUNKED + b"0\r\n\r\n"
    with reading(tmp_path, [CHUNKS, OK, CHUNKS, empty, OK], in_bytes=in_bytes) as (reader, server):
        whole = b"ab0123456789"
        assert [read(reader) for _ in range(5)] == [whole, b"abc", whole, b"", b"abc"]
        (requests,) = server.requests
        for request in requests:
            assert request.startswith(b"GET /prefix/api/v1/pods/p/log?tailLines=5 HTTP/1.1\r\n")
            assert f"host: {server.address}\r\n".encode() in request.lower()
            assert b"authorization: Bearer secret" in request.replace(b"Authorization", b"authorization")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([OK, CLOSED], [OK]),  # the cluster closes it after a response
        ([CLOSED], [OK, OK]),
        ([OK, OK], [OK]),  # the cluster closes it while it is not used
        ([OK, OK, HANG_UP], [OK]),
        ([OK, OK, OLD], [OK]),  # a response that only the client reads
    ],
)
def test_a_closed_connection_is_replaced(tmp_path: Path, first: list[bytes], second: list[bytes]) -> None:
    with reading(tmp_path, first, second) as (reader, server):
        assert [read(reader) for _ in range(3)] == [b"abc"] * 3
        assert len(server.requests) == 2


def test_a_rejected_request_keeps_the_connection(tmp_path: Path) -> None:
    with reading(tmp_path, [OK, MISSING, OK]) as (reader, server):
        assert read(reader) == b"abc"
        with pytest.raises(ClusterError, match="could not read") as raised:
            read(reader)
        assert raised.value.status == 404
        assert read(reader) == b"abc"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "broken",
    [
        CHUNKED + b"5\r\nab",
        CHUNKED + b"-2\r\nab\r\n",
        CHUNKED + b"zz\r\nab\r\n",
        CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
def test_an_incomplete_response_is_an_error(tmp_path: Path, broken: bytes) -> None:
    with reading(tmp_path, [OK, broken], [OK]) as (reader, _):
        assert read(reader) == b"abc"
        with pytest.raises(ConnectionError):
            read(reader)
        assert read(reader) == b"abc"
