"""An encrypted engine proves who it is, unless that was declined explicitly; needs no engine."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tunnels import Served, make_certificate

from torchx.schedulers.docker.engine.address import NoEngineError, find_address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.duplex import Duplex

PING = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK"


@pytest.fixture(autouse=True)
def _no_settings_of_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("DOCKER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "certificates")


@pytest.fixture(scope="module")
def port(certificates: Path) -> Iterator[int]:
    """The port of an encrypted engine that answers a ping, and nothing else."""

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.settimeout(10)
            try:
                end = Served(client, certificates)
                end.head(10.0)
                end.send(PING)
                end.finish()
            except OSError:
                pass  # who called does not trust it
            finally:
                client.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


REFUSED = "its certificate is not trusted: "


def outcome() -> str:
    """What comes of a ping, and of a connection for both directions: they agree."""
    address = find_address()
    try:
        version = Engine(address).version
    except NoEngineError as error:
        with pytest.raises(OSError, match="certificate verify failed"):
            Duplex(socket.create_connection((address.host, address.port), 10), address)
        assert "or accept any certificate: " in (error.hint or "")
        return error.message
    Duplex(socket.create_connection((address.host, address.port), 10), address).close()
    return version


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("https", {}),
        ("https", {"DOCKER_TLS_VERIFY": ""}),
        ("https", {"DOCKER_TLS": "1"}),
        ("tcp", {"DOCKER_TLS": "1"}),
        ("tcp", {"DOCKER_TLS_VERIFY": "1"}),
    ],
)
def test_a_certificate_is_verified(
    monkeypatch: pytest.MonkeyPatch, port: int, certificates: Path, scheme: str, settings: dict[str, str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"{scheme}://127.0.0.1:{port}")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert REFUSED + "self" in outcome(), "no authority is known for it"
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    assert outcome() == "1.41"
    monkeypatch.setenv("DOCKER_HOST", f"{scheme}://localhost:{port}")
    assert REFUSED in outcome(), "it is for another name"


@pytest.mark.parametrize("no", ["0", "false", "No", "off"])
def test_only_an_explicit_no_accepts_any_certificate(
    monkeypatch: pytest.MonkeyPatch, port: int, no: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", no)
    assert outcome() == "1.41"


def test_a_context_says_whether_a_certificate_is_verified(
    monkeypatch: pytest.MonkeyPatch, port: int, tmp_path: Path, certificates: Path
) -> None:
    digest = hashlib.sha256(b"box").hexdigest()
    meta = tmp_path / "config" / "contexts" / "meta" / digest / "meta.json"
    meta.parent.mkdir(parents=True)
    (tmp_path / "config" / "contexts" / "tls" / digest / "docker").mkdir(parents=True)
    monkeypatch.setenv("DOCKER_CONTEXT", "box")
    endpoint = {"Host": f"tcp://127.0.0.1:{port}"}
    meta.write_text(json.dumps({"Endpoints": {"docker": endpoint}}))
    assert REFUSED in outcome()
    meta.write_text(json.dumps({"Endpoints": {"docker": {**endpoint, "SkipTLSVerify": True}}}))
    assert outcome() == "1.41"
    meta.write_text(json.dumps({"Endpoints": {"docker": endpoint}}))
    material = tmp_path / "config" / "contexts" / "tls" / digest / "docker"
    (material / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    assert outcome() == "1.41"


def test_data_that_arrives_with_end_of_handshake_is_received(certificates: Path) -> None:
    here, there = socket.socketpair()
    received: list[tuple[bytes, bool]] = []

    def serve() -> None:
        end = Served(there, certificates)
        assert end.wait(10.0), "no more arrives on the connection"
        received.append(end.receive())

    with here, there:
        there.settimeout(10)
        server = threading.Thread(target=serve)
        server.start()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        here.sendall(outgoing.read())
        while True:
            incoming.write(here.recv(1 << 16))
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        client.write(b"GET /")
        here.sendall(outgoing.read())  # the end of the handshake and the data in one piece
        server.join()
    assert received == [(b"GET /", False)]
