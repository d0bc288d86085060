"""An engine that is reached over ssh, by a real ssh server; the other machine is this one."""

from __future__ import annotations

import getpass
import io
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from containers import Jobs, replicas, scheduler, sh, text
from sshd import ssh_server

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker.engine.address import find_address, parse_address
from torchx.schedulers.docker.engine.client import Engine, NoEngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.engine.ssh import dial_command
from torchx.scheduling.streams import Streams
from torchx.specs.status import AppState

pytestmark = pytest.mark.xdist_group("docker-ssh")


@contextmanager
def program(folder: Path, name: str, script: str) -> Iterator[None]:
    """A program of this name is found first on the PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the engine over ssh; the program ``ssh`` knows the server as ``Box``."""
    if shutil.which("docker") is None:
        pytest.skip("needs the docker command")
    folder = tmp_path_factory.mktemp("sshd")
    socket = Engine().address.path
    with ssh_server(folder) as options:
        lines = "".join(f"  {name} {value}\n" for name, value in options.items())
        (folder / "client").write_text(f"Host Box\n  HostName 127.0.0.1\n{lines}")
        real = shutil.which("ssh")
        counted = f"echo x >> {folder}/count; exec {real} -F {folder}/client"
        with program(folder / "bin", "ssh", f'{counted} "$@"'):
            yield f"ssh://{getpass.getuser()}@Box{socket}"


@pytest.fixture
def opened(box: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each connection; DOCKER_HOST leads to the engine over ssh."""
    monkeypatch.setenv("DOCKER_HOST", box)
    ssh = shutil.which("ssh")
    assert ssh is not None
    count = Path(ssh).parent.parent / "count"
    count.write_text("")
    return count


@pytest.mark.long
@pytest.mark.docker
def test_a_job_runs_over_ssh(jobs: Jobs, opened: Path) -> None:
    failing = "echo up; until test -e /tmp/go; do sleep 0.05; done; exit 4"
    engine = scheduler()
    app_id = jobs.submit(sh(failing), sh("sleep 600", name="x"))
    followed: list[str] = []
    reader = threading.Thread(target=lambda: followed.append(text(app_id, follow=True)))
    reader.start()
    said = io.BytesIO()
    read, write = os.pipe()
    os.write(write, b"from here\n")
    os.close(write)
    # the end of the input reaches the program while its output continues
    command = ["sh", "-c", "cat; echo end; touch /tmp/go; exit 3"]
    assert engine.execute(app_id, "w", 0, command, Streams(said, said, read)) == 3
    os.close(read)
    assert said.getvalue() == b"from here\nend\n"
    assert engine.wait(app_id, 60)  # the supervisor stops the other replica, over ssh too
    reader.join()
    assert followed == ["up\n"]
    described = engine.describe(app_id)
    assert described is not None
    assert [r.state for r in replicas(described)] == [AppState.FAILED, AppState.CANCELLED]


@pytest.mark.docker
def test_requests_share_connections(opened: Path) -> None:
    engine = Engine()
    for _ in range(3):
        engine.call("GET", "/info")
    assert opened.read_text() == "x\n"
    all_of(in_parallel(lambda _: engine.call("GET", "/info"), range(20)))
    assert 1 <= opened.read_text().count("x") <= 3


@pytest.mark.docker
def test_the_other_machine_reports_the_reason(opened: Path, box: str, tmp_path: Path) -> None:
    gone = parse_address(f"ssh://Box{tmp_path}/none.sock", "DOCKER_HOST")
    with pytest.raises(NoEngineError) as caught:
        Engine(gone).call("GET", "/info")
    assert caught.value.message.startswith(f"no Docker engine answers at ssh://Box{tmp_path}/none.sock (")
    assert "none.sock" in caught.value.message.partition("(")[2]
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("this has to work without a password: ssh Box docker version;")


def test_ssh_reports_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(parse_address("ssh://me@box:2222"))
    with program(tmp_path, "ssh", "echo 'me@box: Permission denied (publickey).' >&2; echo >&2; exit 255"):
        with pytest.raises(NoEngineError) as caught:
            engine.call("GET", "/info")
        with pytest.raises(NoEngineError, match="Permission denied"):
            engine.stream("/events")
        with pytest.raises(NoEngineError, match="Permission denied"):
            engine.exchange("/exec/a/start", {})
    assert str(caught.value) == (
        "no Docker engine answers at ssh://me@box:2222 (me@box: Permission denied (publickey).)\n"
        "  this has to work without a password: ssh -l me -p 2222 box docker version; "
        "without Docker: -s local_cwd"
    )
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(StateError, match="no program `ssh`"):
        Engine(parse_address("ssh://box")).call("GET", "/info")


@pytest.mark.parametrize("rest", ["", "-oProxyCommand=x", "u:secret@box", "box:x", "box?a", "me@"])
def test_an_invalid_address_is_rejected(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"ssh://{rest}")
    with pytest.raises(
        UsageError, match=r"DOCKER_HOST is ssh://.*, expected unix:///path/to.sock, tcp://host:port or ssh"
    ):
        find_address()


def test_a_path_is_no_command_on_the_other_machine() -> None:
    command = dial_command("ssh://Box/a;touch b")
    assert command is not None
    assert command[-2:] == ("Box", "docker --host 'unix:///a;touch b' system dial-stdio")
