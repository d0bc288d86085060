"""A program in a container that runs: its output, its input, its result."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import Jobs, ended, jobs_of_a_test, scheduler, sh, until_logged
from guards import guards_of, parent_of, processes_with
from program import on_terminal, start, torchx
from support import wait_until
from tunnels import make_certificate, tunnel

from torchx.errors import StateError
from torchx.machine import enter
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.engine.duplex import Duplex
from torchx.scheduling.streams import Streams

pytestmark = pytest.mark.docker


def run(app_id: str, *command: str, replica: int = 0, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    out, err = io.BytesIO(), io.BytesIO()
    source = None
    if stdin is not None:
        source, feed = os.pipe()
        os.write(feed, stdin)
        os.close(feed)
    code = scheduler().execute(app_id, "w", replica, command, Streams(out, err, source))
    if source is not None:
        os.close(source)
    return code, out.getvalue(), err.getvalue()


def test_a_program_in_a_replica(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 60", 2))
    until_logged(app_id, "up\n")
    odd = "a b'\"$HOME é"
    assert run(app_id, "sh", "-c", 'echo "$1"; echo no >&2; exit 3', "sh", odd) == (
        3,
        f"{odd}\n".encode(),
        b"no\n",
    )
    assert run(app_id, "sh", "-c", "echo $TORCHX_REPLICA", replica=1)[1] == b"w/1\n"
    assert run(app_id, "wc", "-c", stdin=b"x" * 5000)[1].strip() == b"5000"
    assert run(app_id, "seq", "100000")[1].split()[-1] == b"100000"
    handle = f"local_docker://torchx/{app_id}"
    done = torchx("exec", f"{handle}/w/1", "sh", "-c", "echo $TORCHX_REPLICA; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, "w/1\n", "")
    assert on_terminal("exec", handle, "sh", "-c", "test -t 1 && echo terminal")[0].strip() == "terminal"
    with pytest.raises(StateError, match="has no replica w/7"):
        run(app_id, "true", replica=7)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("exec") / "certificates")


@pytest.fixture(params=["unix", "tcp", "tls"])
def _way(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, certificates: Path
) -> Iterator[None]:
    """The engine behind its socket, behind a port, and behind an encrypted one."""
    encrypted = certificates if request.param == "tls" else None
    path = Engine().address.path
    if request.param == "unix" or not path:
        yield
        return
    with tunnel(path, encrypted) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        if encrypted is not None:
            monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
            monkeypatch.setenv("DOCKER_CERT_PATH", str(encrypted))
        yield


@pytest.fixture(scope="module")
def sleeping() -> Iterator[str]:
    """An application that only runs."""
    with jobs_of_a_test() as jobs:
        app_id = jobs.submit(sh("echo up; exec sleep 600"))
        until_logged(app_id, "up\n")
        yield app_id


@pytest.mark.usefixtures("_way")
def test_megabytes_in_both_directions_and_the_end_of_each(sleeping: str, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(4_000_000)
    (tmp_path / "data").write_bytes(data)

    def fed(*command: str) -> tuple[int, bytes, bytes]:
        with (tmp_path / "data").open("rb") as file:
            out, err = io.BytesIO(), io.BytesIO()
            streams = Streams(out, err, file.fileno())
            return scheduler().execute(sleeping, "w", 0, command, streams), out.getvalue(), err.getvalue()

    assert fed("cat") == (0, data, b"")
    digest = hashlib.sha256(data).hexdigest()
    # all is read before anything is printed: only the end of the input starts the output
    assert fed("sh", "-c", "sha256sum; exit 7")[:2] == (7, f"{digest}  -\n".encode())
    assert fed("sh", "-c", "sha256sum >&2; exit 8") == (8, b"", f"{digest}  -\n".encode())
    assert fed("sh", "-c", "head -c 10; exit 9")[:2] == (9, data[:10]), "the rest is not read"
    assert fed("false") == (1, b"", b"")
    assert run(sleeping, "cat", stdin=b"") == (0, b"", b"")
    assert run(sleeping, "sh", "-c", "head -c 3000000 /dev/zero; exit 5") == (5, bytes(3_000_000), b"")


def test_a_reset_at_the_end_loses_nothing(sleeping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine resets a connection if the program has not read all of its input."""
    receive = Duplex.receive

    def until_reset(connection: Duplex) -> tuple[bytes, bool]:
        data, over = receive(connection)
        if over and not data:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return data, False

    monkeypatch.setattr(Duplex, "receive", until_reset)
    assert run(sleeping, "sh", "-c", "echo out; exit 6") == (6, b"out\n", b"")


@pytest.mark.usefixtures("_way")
def test_exit_code_is_of_the_program_not_its_output(sleeping: str) -> None:
    script = "exec >&- 2>&-; sleep 0.5; exit 6"
    assert run(sleeping, "sh", "-c", script)[0] == 6


def test_what_is_not_there(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 60"))
    until_logged(app_id, "up\n")
    try:
        code, out, err = run(app_id, "no-such-program")
    except StateError as error:
        assert "no-such-program" in str(error)
    else:
        assert code in (126, 127)
        assert b"no-such-program" in out + err
    over = jobs.submit(sh("true"))
    ended(over)
    with pytest.raises(StateError, match="is not running"):
        run(over, "true")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_a_program_ends_with_the_command_line(sleeping: str, number: signal.Signals) -> None:
    """Also its descendants, and those that ignore TERM."""
    mark = uuid.uuid4().hex.encode()
    script = f"trap '' HUP TERM; sh -c 'sleep 600; : {mark.decode()}' & echo up; wait"
    with start("exec", f"local_docker://torchx/{sleeping}", "sh", "-c", script) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "up\n"
        programs = wait_until(lambda: two(processes_with(mark)), "both run")
        (guard,) = wait_until(lambda: guards_of(programs[0]), "it is guarded")
        command.send_signal(number)
    wait_until(lambda: not processes_with(mark), "they have ended")
    wait_until(lambda: enter.start_of(guard) < 0, "and so has the guard")


def test_what_a_program_leaves_running_stays(sleeping: str, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex.encode()
    script = f"sh -c 'sleep 600; : {mark.decode()}' > /dev/null 2>&1 < /dev/null & read line"
    with start("exec", "-i", f"local_docker://torchx/{sleeping}", "sh", "-c", script, stdin=True) as command:
        both = wait_until(lambda: two(processes_with(mark)), "both run")
        (left,) = (pid for pid in both if parent_of(pid) in both)
        (guard,) = wait_until(lambda: guards_of(left), "it is guarded")
        assert command.stdin is not None
        command.stdin.write("end\n")
        command.stdin.flush()
        assert command.wait(60) == 0
    wait_until(lambda: enter.start_of(guard) < 0, "its guard has ended")
    assert enter.start_of(left) > 0
    os.kill(left, signal.SIGKILL)


def two(found: list[int]) -> list[int]:
    """The processes if there are two."""
    return found if len(found) == 2 else []
