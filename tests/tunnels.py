"""Ways to an engine: its socket, a port that leads there, and one that is encrypted, with a certificate."""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.duplex import Duplex


def make_certificate(folder: Path) -> Path:
    """Makes a certificate for 127.0.0.1 that is its own authority, as ``ca.pem``; returns the folder."""
    folder.mkdir()
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=engine "
        "-keyout server-key.pem -out ca.pem -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run(make.split(), cwd=folder, check=True, capture_output=True)
    return folder


def context_of(certificates: Path) -> ssl.SSLContext:
    """What a server with that certificate encrypts with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "ca.pem", certificates / "server-key.pem")
    return context


class Served(Duplex):
    """The server's end of a connection; with a certificate it is encrypted."""

    def __init__(self, plain: socket.socket, certificates: Path | None) -> None:
        self._context = None if certificates is None else context_of(certificates)
        folder = None if certificates is None else str(certificates)
        super().__init__(plain, Address("", certificates=folder))

    def _handshake(self, where: Address) -> None:
        assert self._context is not None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shake_hands(self._tls)


def _bridge(left: Duplex, right: Duplex) -> None:
    """Hands on what comes from each side to the other; the end of one direction leaves the other open."""
    other = {left: right, right: left}
    reading = {left, right}
    with suppress(OSError):
        while reading or not (left.is_sent and right.is_sent):
            poll = select.poll()
            for side in other:
                wants = select.POLLIN if side in reading and other[side].is_sent else 0
                if wants or not side.is_sent:
                    poll.register(side, wants | (0 if side.is_sent else select.POLLOUT))
            poll.poll(0 if left.is_received or right.is_received else 1000)
            for side in other:
                side.flush()
                if side not in reading or not other[side].is_sent:
                    continue
                data, ended = side.receive()
                if data:
                    other[side].send(data)
                if ended:
                    reading.discard(side)
                    other[side].finish()
    left.close()
    right.close()


@contextmanager
def tunnel(path: str, certificates: Path | None = None) -> Iterator[int]:
    """A port of this machine that leads to a socket, encrypted where there is a certificate."""
    threads: list[threading.Thread] = []
    open_sockets: list[socket.socket] = []

    def serve(client: socket.socket) -> None:
        try:
            client.settimeout(10)
            engine = socket.socket(socket.AF_UNIX)
            open_sockets.append(engine)
            engine.connect(path)
            _bridge(Served(client, certificates), Served(engine, None))
        except OSError:
            client.close()

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            open_sockets.append(client)
            threads.append(threading.Thread(target=serve, args=(client,)))
            threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for one in open_sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            for one in open_sockets:
                one.close()
