"""An engine with GPUs: passes all requests to a real one, which has none, and notes the GPUs as a label."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchx.schedulers.docker.engine.address import find_address

GPUS = "test.gpus"
"""Label: the ids of the GPUs that a container got."""


class GpuEngine:
    """Listens on a socket, and connects each client to the real engine.

    Args:
        folder: a folder with a short path.
        target: the socket of the real engine.
    """

    def __init__(self, folder: Path, target: str) -> None:
        self.path = folder / "engine.sock"
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self.held = threading.Event()
        self.subscriptions: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(256)
        self._sockets: set[socket.socket] = {self._listener}
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def hold_starts(self) -> None:
        """Holds requests that start containers until :meth:`release_starts`; sets `held` at the first one."""
        self.held.clear()
        self._open.clear()

    def release_starts(self) -> None:
        """Passes the requests to start containers on."""
        self._open.set()

    def end_subscriptions(self) -> None:
        """Closes the connections on which clients get events."""
        for each in list(self.subscriptions):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes all connections: clients find no engine."""
        self.release_starts()
        while self._threads:
            for each in list(self._sockets):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._threads.pop().join(1.0)
        self._listener.close()

    def _begin(self, target: Callable[..., None], *args: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._begin(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as engine:
            self._sockets |= {client, engine}
            with suppress(OSError):
                self._connect(client, engine)
            self._sockets -= {client, engine}
            self.subscriptions.discard(client)

    def _connect(self, client: socket.socket, engine: socket.socket) -> None:
        head, rest = self._head(client)
        if b"/containers/create" in head.partition(b"\r\n")[0]:
            head, rest = self._without_gpus(client, head, rest)
        if b"/start" in head.partition(b"\r\n")[0]:
            if not self._open.is_set():
                self.held.set()
            self._open.wait()
        engine.connect(self._target)
        engine.sendall(head + rest)
        if b"/events" in head.partition(b"\r\n")[0]:
            client.sendall(engine.recv(1 << 16))  # the client has a subscription once it has the answer
            self.subscriptions.add(client)
        upwards = self._begin(_pump, client, engine)
        _pump(engine, client)
        upwards.join()

    def _head(self, client: socket.socket) -> tuple[bytes, bytes]:
        data = b""
        while b"\r\n\r\n" not in data:
            more = client.recv(1 << 16)
            if not more:
                raise ConnectionResetError
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n", rest

    def _without_gpus(self, client: socket.socket, head: bytes, rest: bytes) -> tuple[bytes, bytes]:
        lines = head.split(b"\r\n")
        (length,) = (line for line in lines if line.lower().startswith(b"content-length:"))
        while len(rest) < int(length.partition(b":")[2]):
            rest += client.recv(1 << 16)
        body = json.loads(rest)
        requests = body["HostConfig"].pop("DeviceRequests", None) or []
        body["Labels"][GPUS] = ",".join(gpu for one in requests for gpu in one.get("DeviceIDs") or [])
        rest = json.dumps(body).encode()
        return head.replace(length, b"Content-Length: %d" % len(rest)), rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def gpu_engine() -> Iterator[GpuEngine]:
    """An engine with GPUs, until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-"))
    engine = GpuEngine(folder, find_address().path)
    try:
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)
