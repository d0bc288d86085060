"""Probes of published ports: the proxy of an engine accepts connections for servers that do not run."""

from __future__ import annotations

import socket
import threading

import pytest
from support import wait_until

from torchx.schedulers.docker.services.readiness import is_reachable
from torchx.supervisor.services.probes import CLOSED, PortCheck


@pytest.mark.parametrize(("keeps_open", "answer"), [(False, CLOSED), (True, "")])
def test_published_port_is_ready_if_connection_stays_open(keeps_open: bool, answer: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        accepted: list[socket.socket] = []

        def serve() -> None:
            connection, _ = proxy.accept()
            accepted.append(connection)
            if not keeps_open:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        check = PortCheck(proxy.getsockname()[1], stays=30.0 if not keeps_open else 0.5)
        answers: list[str] = []

        def answered() -> bool:
            polled = check.poll()
            answers.extend([] if polled is None else [polled])
            return bool(answers)

        wait_until(answered, "an answer")
        check.close()
        thread.join()
        for connection in accepted:
            connection.close()
    assert answers == [answer]


def test_network_is_reachable_if_this_machine_has_its_gateway() -> None:
    def on(gateway: str) -> dict[str, object]:
        return {"NetworkSettings": {"Networks": {"torchx": {"Gateway": gateway}}}}

    assert is_reachable(on("127.0.0.1"))
    assert not is_reachable(on("192.0.2.1"))
    assert not is_reachable(on(""))
    assert is_reachable({"HostConfig": {"NetworkMode": "host"}})
