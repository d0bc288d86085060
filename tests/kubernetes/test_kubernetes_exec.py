"""A program in a replica that runs: its output, its input, its result."""

from __future__ import annotations

import io
import os

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit, until_all_run, until_ended, until_state
from program import on_terminal, torchx

from torchx.errors import StateError
from torchx.execution import Streams
from torchx.schedulers.kubernetes_errors import ClusterError
from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler
from torchx.specs.status import AppState


@pytest.fixture
def app_id(scheduler: KubernetesScheduler) -> str:
    found = submit(scheduler, role("sleep 60", num_replicas=2))
    until_all_run(scheduler, found)
    return found


def run(
    scheduler: KubernetesScheduler, app_id: str, *command: str, replica: int = 0, stdin: bytes | None = None
) -> tuple[int, bytes, bytes]:
    out, err = io.BytesIO(), io.BytesIO()
    if stdin is None:
        code = scheduler.execute(app_id, "worker", replica, command, Streams(out, err))
    else:
        source, feed = os.pipe()
        os.write(feed, stdin)
        os.close(feed)
        code = scheduler.execute(app_id, "worker", replica, command, Streams(out, err, source))
        os.close(source)
    return code, out.getvalue(), err.getvalue()


def test_its_output_and_its_result(scheduler: KubernetesScheduler, app_id: str) -> None:
    odd = "a b'\"$HOME é"
    assert run(scheduler, app_id, "sh", "-c", 'echo "$1"; echo no >&2; exit 3', "sh", odd) == (
        3,
        f"{odd}\n".encode(),
        b"no\n",
    )
    assert run(scheduler, app_id, "true")[0] == 0
    for replica in (0, 1):
        _, out, _ = run(scheduler, app_id, "sh", "-c", "echo $POD", replica=replica)
        assert f"-worker-{replica}-" in out.decode()


def test_much_comes_whole(scheduler: KubernetesScheduler, app_id: str) -> None:
    code, out, _ = run(scheduler, app_id, "seq", "100000")
    assert code == 0
    assert out.split() == [b"%d" % n for n in range(1, 100_001)]


def test_what_is_handed_on(scheduler: KubernetesScheduler, app_id: str) -> None:
    assert run(scheduler, app_id, "wc", "-c", stdin=b"x" * 5000)[1].strip() == b"5000"


def test_what_cannot_be_run(cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str) -> None:
    with pytest.raises(StateError, match='`nosuch` could not be run there: exec: "nosuch"'):
        run(scheduler, app_id, "nosuch")
    with pytest.raises(StateError, match="has no replica worker/7"):
        run(scheduler, app_id, "true", replica=7)
    cluster.fault("GET", "/exec$", 403, body={"message": 'User "jane" cannot create resource "pods/exec" in'})
    with pytest.raises(ClusterError, match="does not let jane create pods/exec"):
        run(scheduler, app_id, "true")
    ended = submit(scheduler, "true")
    until_ended(scheduler, ended)
    with pytest.raises(StateError, match="does not run any more"):
        run(scheduler, ended, "true")
    waits = submit(scheduler, role("true", image="registry.example.com/nosuch"))
    until_state(scheduler, waits, AppState.PENDING)
    with pytest.raises(StateError, match="does not run yet"):
        run(scheduler, waits, "true")


def test_the_command(scheduler: KubernetesScheduler, app_id: str) -> None:
    handle = f"kubernetes://torchx/{app_id}"
    done = torchx("exec", f"{handle}/worker/1", "sh", "-c", "echo $POD; exit 5")
    assert (done.returncode, done.stderr) == (5, "")
    assert "-worker-1-" in done.stdout
    done = torchx("exec", "-i", handle, "--", "cat", stdin="typed\n")
    assert (done.returncode, done.stdout) == (0, "typed\n")
    assert torchx("exec", handle, "cat", stdin="typed\n").stdout == "", "nothing is handed on unasked"
    assert "in one replica" in torchx("exec", f"{handle}/worker/0,1", "true").stderr
    shown, code = on_terminal("exec", handle, "echo", "hi")
    assert (shown.strip(), code) == ("hi", 0)


def test_an_engine_that_cannot() -> None:
    handle = torchx("run", "-s", "local_cwd", "--detach", "utils.sh", "sleep", "60").stdout.strip()
    done = torchx("exec", handle, "true")
    assert done.returncode == 2
    assert "local_cwd runs no further programs in its replicas" in done.stderr
    torchx("cancel", handle)
