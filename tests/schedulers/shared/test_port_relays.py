"""Ports of replicas: connections on each engine, and the command that forwards a local one."""

from __future__ import annotations

import random
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from echoserver import exchange, expected, program
from engine import IMAGE
from program import start, torchx
from support import wait_until

from torchx.errors import StateError
from torchx.machine import threads
from torchx.machine.relay import Relay
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.exec import addresses_of
from torchx.specs import AppDef, Resource, Role

ENGINES = [
    "local_cwd",
    pytest.param("slurm", marks=pytest.mark.slurm),
    pytest.param("local_docker", marks=pytest.mark.docker),
]


@pytest.fixture(params=ENGINES)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """A scheduler, and an application whose second replica serves a port."""
    scheduler: Any = get_scheduler_factories()[request.param]("torchx")
    inside = request.param == "local_docker"
    source, python = program("0.0.0.0" if inside else "127.0.0.1"), "python3" if inside else sys.executable
    role = Role("server", IMAGE if inside else "", entrypoint=python, args=["-I", "-S", "-c", source])
    role.resource, role.port_map = Resource(1, 0, 100), {"http": 8080}
    app_id = scheduler.submit(AppDef("serve", [role]), {})
    wait_until(lambda: list(scheduler.log_iter(app_id, "server", 0)), "it listens")
    yield scheduler, app_id
    scheduler.cancel(app_id)
    assert scheduler.wait(app_id, 60)
    with pytest.raises(StateError, match="not running"):
        scheduler.port_connector(app_id, "server", 0, "http")
    scheduler.delete(app_id)


def test_connections_to_a_replica(server: tuple[Any, str]) -> None:
    scheduler, app_id = server
    failures: list[StateError] = []
    connector = scheduler.port_connector(app_id, "server", 0, "TORCHX_PORT_HTTP")
    relay = Relay(connector, 0, failures.append)
    host, _, port = relay.address.partition(":")
    texts = [random.Random(size).randbytes(size) for size in (0, 5, 300_000)]

    def ask(data: bytes) -> bytes:
        with socket.create_connection((host, int(port))) as client:
            return exchange(client, data)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(ask, texts)) == [expected("server/0", data) for data in texts]
    with socket.create_connection((host, int(port))) as client:
        assert exchange(client, b"now", end=False) == expected("server/0", b"now"), "the server ends first"
    assert failures == []
    relay.close()
    with pytest.raises(StateError, match="server/0 has no port `nope`") as raised:
        scheduler.port_connector(app_id, "server", 0, "nope")
    assert raised.value.hint == "its ports: http"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
    with pytest.raises(StateError, match=rf"port {number}.*: .*refused"):
        scheduler.port_connector(app_id, "server", 0, str(number))()


@pytest.mark.parametrize("server", ENGINES[:2], indirect=True)
def test_a_port_that_listens_on_ipv6_only(server: tuple[Any, str]) -> None:
    scheduler, app_id = server
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listening:
        number = listening.getsockname()[1]
        connection = scheduler.port_connector(app_id, "server", 0, str(number))()
        there, _ = listening.accept()
        there.sendall(b"six")
        assert connection.recv(3) == b"six"
        there.close()
        connection.close()


@pytest.mark.parametrize("server", ["local_cwd"], indirect=True)
def test_the_command_forwards_until_it_is_interrupted(server: tuple[Any, str]) -> None:
    _, app_id = server
    handle = f"local_cwd://torchx/{app_id}"
    command = start("port", f"{handle}/server/0", "8080")  # the declared number of the port
    assert command.stdout is not None
    assert command.stderr is not None
    address = command.stdout.readline().strip()
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as client:
        assert exchange(client, b"abc") == expected("server/0", b"abc")
    second = torchx("port", handle, "http", port)
    assert (second.returncode, second.stderr.partition("\n")[0]) == (
        1,
        f"error: cannot listen on local port {port}: Address already in use",
    )
    for words in (["99999"], ["http", "x"], ["0"]):
        assert torchx("port", handle, *words).returncode == 2, words
    command.send_signal(signal.SIGINT)
    assert command.wait(60) == 0
    assert command.stderr.read() == "forwarding to port 8080 of server/0; Ctrl-C ends it\n"
    command.stdout.close()
    command.stderr.close()


def test_a_client_without_a_thread_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay(lambda: pytest.fail("it has no thread"), 0, lambda error: None)
    monkeypatch.setattr(threads, "begin", lambda *args, name: None)
    host, _, port = relay.address.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        assert client.recv(1) == b""
    relay.close()


def test_addresses_of_a_container() -> None:
    """That of the container on this machine, the published one elsewhere."""
    engine = Engine.__new__(Engine)
    found = {
        "Config": {"Env": ["TORCHX_PORT_HTTP=8080"]},
        "NetworkSettings": {
            "Networks": {"bridge": {"IPAddress": "172.17.0.5"}},
            "Ports": {"8080/tcp": [{"HostIp": "0.0.0.0", "HostPort": "49153"}]},
        },
    }
    engine.address = Address("unix:///x", path="/x")
    assert addresses_of(engine, found, "w/0", "http") == [("172.17.0.5", 8080), ("localhost", 49153)]
    engine.address = Address("tcp://far:2376", host="far", port=2376)
    assert addresses_of(engine, found, "w/0", "http") == [("far", 49153)]
    with pytest.raises(StateError, match=r"port 22 of w/0 cannot be reached: it is not published"):
        addresses_of(engine, found, "w/0", "22")
