"""An engine that is reached over the network, from a machine that has no record of its jobs."""

from __future__ import annotations

import io
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import Jobs, containers, describe, ended, replicas, running, scheduler, sh, text, until_logged

from torchx.schedulers.docker.engine.client import Engine
from torchx.scheduling.streams import Streams
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


class Forwarder:
    """Hands on what comes to a port to the engine's socket, as a tunnel would."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._open: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(self._path)
            self._open += [client, engine]
            for ends in ((client, engine), (engine, client)):
                self._pumps.append(threading.Thread(target=_pump, args=ends))
                self._pumps[-1].start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
        for end in self._open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it is closed already
        for pump in self._pumps:
            pump.join()
        for end in self._open:
            end.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other side has gone


@pytest.fixture
def far() -> Iterator[str]:
    """The address of the engine as another machine has it."""
    forwarder = Forwarder(Engine().address.path)
    yield forwarder.address
    forwarder.close()


def test_another_machine_reads_and_ends_the_job(
    far: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app_id = jobs.submit(sh("echo up $TORCHX_REPLICA; sleep 600", 2), sh("sleep 600", name="x"))
    until_logged(app_id, "up")
    monkeypatch.setenv("DOCKER_HOST", far)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "far"))
    result = running(app_id, 3)
    assert [role.name for role in result.roles] == ["w", "x"]
    assert [line.state for line in scheduler().list() if line.app_id == app_id] == [AppState.RUNNING]
    said = io.BytesIO()
    assert (
        scheduler().execute(app_id, "w", 1, ["sh", "-c", "echo in; exit 3"], Streams(said, said, None)) == 3
    )
    followed: list[str] = []
    reader = threading.Thread(target=lambda: followed.append(text(app_id, follow=True)))
    reader.start()
    scheduler().cancel(app_id)
    result = ended(app_id)
    reader.join()
    assert {r.state for r in replicas(result)} == {AppState.CANCELLED}
    assert sorted(followed[0].splitlines()) == ["up w/0", "up w/1"]
    scheduler().delete(app_id)
    assert containers(app_id) == []
    assert not os.path.exists(tmp_path / "far"), "asking leaves nothing behind"


def test_job_is_started_and_retried_on_engine_elsewhere(
    far: str, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", far)
    done = jobs.run(sh("echo try; exit 4", 2, max_retries=1))
    assert (done.state, done.num_restarts) == (AppState.FAILED, 1)
    assert describe(jobs.ids[-1]).first_failure is not None
    assert text(jobs.ids[-1]).count("try") >= 3
