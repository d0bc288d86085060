"""Ports of pods, forwarded over websockets."""

from __future__ import annotations

import random
import socket
import sys

import pytest
from echoserver import exchange, expected, program
from kubejobs import role, submit, until_ended
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler


def test_connections_to_a_pod(scheduler: KubernetesScheduler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    server = role("", port_map={"http": number})
    server.entrypoint, server.args = sys.executable, ["-I", "-S", "-c", program()]
    app_id = submit(scheduler, server)
    wait_until(lambda: list(scheduler.log_iter(app_id, "worker", 0)), "it listens")
    connector = scheduler.port_connector(app_id, "worker", 0, "http")
    for size in (
        0,
        5,
        200_000,
    ):  # the end of the client's data is not forwarded: the request names its size
        data = random.Random(size).randbytes(size) + b"now"
        with connector() as client:
            assert exchange(client, data, end=False) == expected("worker/0", data)
    with pytest.raises(StateError, match="worker/0 has no port `nope`"):
        scheduler.port_connector(app_id, "worker", 0, "nope")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    client = scheduler.port_connector(app_id, "worker", 0, str(closed))()
    assert client.recv(10) == b"", "the node reports it after the connection was accepted"
    client.close()
    scheduler.cancel(app_id)
    until_ended(scheduler, app_id)
    with pytest.raises(StateError, match="not running"):
        connector()
