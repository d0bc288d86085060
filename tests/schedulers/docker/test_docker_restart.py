"""An engine that is restarted while jobs run on it: an engine of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import Jobs, describe, ended, replicas, running, scheduler, sh, text, until_logged
from engine import IMAGE
from support import wait_until

from torchx.errors import StateError, TorchxError
from torchx.schedulers.docker.engine.client import Engine
from torchx.specs.mounts import BindMount
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.docker]


class OwnEngine:
    """An engine that can be stopped and started."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder, self._log = folder, log
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"unix://{folder}/sock"

    def start(self) -> None:
        words = [
            "--data-root",
            f"{self._folder}/data",
            "--exec-root",
            f"{self._folder}/exec",
            "-H",
            self.address,
        ]
        words += ["--pidfile", f"{self._folder}/pid", "--bridge", "none", "--iptables=false"]
        # in a network of its own: it would take the other engine's bridge away
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "dockerd", *words], stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, "the engine answers")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        try:
            Engine().call("GET", "/info")
        except TorchxError:
            return False
        return True


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OwnEngine]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("an engine of the test's own needs dockerd and root: run the tests as root")
    image = tmp_path / "image.tar"
    with image.open("wb") as file:
        subprocess.run(["docker", "save", IMAGE], stdout=file, check=True)
    folder = Path(f"/tmp/torchx-test-engine-{os.getpid()}")  # short: a socket's path may have 107 characters
    own = OwnEngine(folder, tmp_path / "dockerd.log")
    folder.mkdir()
    monkeypatch.setenv("DOCKER_HOST", own.address)
    try:
        own.start()
        subprocess.run(["docker", "load", "-q", "-i", image], check=True, stdout=subprocess.DEVNULL)
        yield own
        own.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def jobs(engine: OwnEngine) -> Iterator[Jobs]:
    yield Jobs()


def test_ended_is_reported_and_retryable_continues(engine: OwnEngine, jobs: Jobs, tmp_path: Path) -> None:
    plain = jobs.submit(sh("echo up; exec sleep 600"))
    script = "echo up; test -e /x/seen && exit 0; touch /x/seen; exec sleep 600"
    retried = jobs.submit(sh(script, max_retries=1, mounts=[BindMount(str(tmp_path), "/x")]))
    for app_id in (plain, retried):
        running(app_id)
        until_logged(app_id, "up")
    engine.stop()
    with pytest.raises(StateError, match=f"no Docker engine answers at {engine.address}"):
        describe(plain)
    engine.start()
    reported = ended(plain)
    assert reported.state is AppState.FAILED
    assert reported.first_failure is not None
    assert reported.first_failure.result in (128 + 9, 128 + 15)
    reported = ended(retried)
    assert reported.state is AppState.SUCCEEDED
    assert replicas(reported)[0].attempt == 2
    assert text(retried) == "up\nup\n"


def test_who_waits_does_not_wait_for_ever(engine: OwnEngine, jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exec sleep 600"))
    running(app_id)
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    try:
        # the end of the container may be reported before that of the engine
        assert scheduler().wait(app_id, 60)
    except StateError as error:
        assert "Docker engine" in error.message
    finally:
        stopping.join()
    engine.start()
    assert ended(app_id).state is AppState.FAILED
