"""A program in a replica that runs: its output, its input, its result."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from guards import guards_of
from kubejobs import role, submit, until_all_run, until_ended, until_state
from program import on_terminal, start, torchx
from support import wait_until

from torchx.errors import StateError
from torchx.machine import enter
from torchx.schedulers.kubernetes import exec as kubernetes_exec
from torchx.schedulers.kubernetes.api import client
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.streams import Streams
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
    with pytest.raises(StateError, match="`nosuch` could not be run: No such file"):
        run(scheduler, app_id, "nosuch")
    with pytest.raises(StateError, match="has no replica worker/7"):
        run(scheduler, app_id, "true", replica=7)
    cluster.fault("GET", "/exec$", 403, body={"message": 'User "jane" cannot create resource "pods/exec" in'})
    with pytest.raises(ClusterError, match="does not let jane create pods/exec"):
        run(scheduler, app_id, "true")
    ended = submit(scheduler, "true")
    until_ended(scheduler, ended)
    with pytest.raises(StateError, match="is not running"):
        run(scheduler, ended, "true")
    waits = submit(scheduler, role("true", image="registry.example.com/nosuch"))
    until_state(scheduler, waits, AppState.PENDING)
    with pytest.raises(StateError, match="is not running yet"):
        run(scheduler, waits, "true")


def test_an_image_without_env(cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str) -> None:
    cluster.absent_programs.add("env")
    for _ in range(10):  # the input is read before or after the first attempt fails
        assert run(scheduler, app_id, "wc", "-c", stdin=b"x" * 5000)[1].strip() == b"5000", "all is sent"
    with pytest.raises(StateError, match='`nosuch` could not be run: exec: "nosuch"'):
        run(scheduler, app_id, "nosuch")


@pytest.mark.parametrize("size", [1, 5, 100])
def test_message_about_absent_program_may_come_in_pieces(
    cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str, size: int
) -> None:
    cluster.longest_piece = size
    with pytest.raises(StateError, match="`nosuch` could not be run: No such file or directory"):
        run(scheduler, app_id, "nosuch")
    assert run(scheduler, app_id, "sh", "-c", "printf 'env: a' >&2; exit 3") == (3, b"", b"env: a")
    assert run(scheduler, app_id, "sh", "-c", "printf 'env: a\\nb'; exit 127") == (127, b"env: a\nb", b"")


def test_a_message_like_that_of_env_is_output(scheduler: KubernetesScheduler, app_id: str) -> None:
    assert run(scheduler, app_id, "sh", "-c", "echo env: a: b >&2; exit 3") == (3, b"", b"env: a: b\n")
    script = "echo env: a >&2; sleep 0.2; echo b; exit 127"
    assert run(scheduler, app_id, "sh", "-c", script) == (127, b"b\n", b"env: a\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_a_program_ends_with_the_command_line(app_id: str, number: signal.Signals) -> None:
    script = "trap '' HUP TERM; sleep 600 & echo $$ $!; wait"
    with start("exec", f"kubernetes://torchx/{app_id}", "sh", "-c", script) as command:
        assert command.stdout is not None
        programs = [int(pid) for pid in command.stdout.readline().split()]
        wait_until(lambda: guards_of(programs[0]), "it is guarded")
        command.send_signal(number)
    wait_until(lambda: all(enter.start_of(pid) < 0 for pid in programs), "they have ended")


def test_what_a_program_leaves_running_stays(
    scheduler: KubernetesScheduler, app_id: str, tmp_path: Path
) -> None:
    script = (
        f"sleep 600 > /dev/null 2>&1 < /dev/null & echo $!; until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    )
    with start("exec", f"kubernetes://torchx/{app_id}", "sh", "-c", script) as command:
        assert command.stdout is not None
        left = int(command.stdout.readline())
        (guard,) = wait_until(lambda: guards_of(left), "it is guarded")
        (tmp_path / "end").touch()
    wait_until(lambda: enter.start_of(guard) < 0, "its guard has ended")
    assert enter.start_of(left) > 0
    os.kill(left, signal.SIGKILL)


# --- nodes that are lost -------------------------------------------------------------------------


def test_a_lost_node_ends_it_in_time(
    cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes the connection, and no byte comes: recorded as 14d."""
    cluster.reaches_node_first = False
    monkeypatch.setattr(kubernetes_exec, "FIRST", 0.2)
    monkeypatch.setattr(kubernetes_exec, "PROBE", 0.3)
    cluster.hung = True
    begin = time.monotonic()
    with pytest.raises(StateError, match=r"the node \S+ does not answer: no response to commands"):
        run(scheduler, app_id, "true")
    condition = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    cluster.fault("GET", "/api/v1/nodes/", 200, body={"status": {"conditions": [condition]}})
    with pytest.raises(StateError, match=r"it is not ready \(Kubelet stopped posting node status\)"):
        run(scheduler, app_id, "true")
    assert time.monotonic() - begin < 20
    cluster.hung = False
    assert run(scheduler, app_id, "sh", "-c", "sleep 1; exit 4")[0] == 4, "a silent program is none"


@pytest.mark.long
@pytest.mark.parametrize("part", ["exec", "port"])
def test_without_a_websocket_the_node_is_named(
    cluster: FakeCluster,
    scheduler: KubernetesScheduler,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    monkeypatch.setattr(client, "HANDSHAKE", -4.5)  # half a second with the one of the connection

    def use() -> object:
        if part == "exec":
            return run(scheduler, app_id, "true")
        return scheduler.port_connector(app_id, "worker", 0, "80")()

    for _ in range(2):  # it hangs twice
        cluster.hung = True
        with pytest.raises(
            StateError, match=r"the node node-1 does not answer: no response to commands for"
        ) as lost:
            use()
        assert not isinstance(lost.value, ClusterError)
        cluster.fault("GET", "/pods/[^/]+$", "drop", times=99)
        with pytest.raises(ClusterError, match="no cluster answers"):
            use()
        cluster.faults.clear()
        cluster.hung = False
        assert run(scheduler, app_id, "sh", "-c", "exit 4")[0] == 4


@pytest.mark.parametrize("verb", ["get", "create"])
@pytest.mark.parametrize("part", ["exec", "portforward"])
def test_a_missing_right_is_named(
    cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str, part: str, verb: str
) -> None:
    cluster.denied.add((verb, f"pods/{part}"))
    with pytest.raises(ClusterError) as refused:
        if part == "exec":
            run(scheduler, app_id, "true")
        else:
            scheduler.port_connector(app_id, "worker", 0, "80")()
    who = "jane" if verb == "get" else "you"
    assert refused.value.message == (
        f"the cluster does not let {who} {verb} pods/{part} in namespace `default`: "
        "it takes the rights to get and to create"
    )
    assert refused.value.hint == (
        f"request the right, then check: kubectl auth can-i {verb} pods --subresource={part} -n default"
    )


@pytest.mark.parametrize("on_a_terminal", [False, True])
@pytest.mark.parametrize("verb", ["get", "create"])
def test_the_command_without_a_right_is_one_error(
    cluster: FakeCluster, app_id: str, verb: str, on_a_terminal: bool
) -> None:
    """A connection takes both rights; without one, the command ends, also while its stdin is open."""
    cluster.denied.add((verb, "pods/exec"))
    words = ("exec", f"kubernetes://torchx/{app_id}/worker/1", "--", "sh", "-c", "echo ran")
    begin = time.monotonic()
    if on_a_terminal:
        shown, code = on_terminal(*words, columns=300)
    else:
        with start(*words, stdin=True) as process:  # its stdin stays open
            assert process.wait(60) is not None
            assert process.stdout is not None
            assert process.stderr is not None
            shown, code = process.stdout.read() + process.stderr.read(), process.returncode
    assert time.monotonic() - begin < 30
    (error, hint) = shown.splitlines()
    assert f" {verb} pods/exec in namespace `default`: it takes the rights to get and to create" in error
    assert hint.endswith(f"kubectl auth can-i {verb} pods --subresource=exec -n default")
    assert code == 1, shown


def test_lost_node_is_named_before_anything_is_sent(
    cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str
) -> None:
    (pod, *_) = sorted(each["metadata"]["name"] for each in cluster.objects("pods"))
    ready = {"type": "Ready", "status": "False"}
    cluster.store.update(
        "/api/v1/namespaces/default/pods", pod, lambda found: found["status"].update(conditions=[ready])
    )
    since = "2026-01-01T00:00:00Z"
    node = {"type": "Ready", "status": "Unknown", "message": "gone.", "lastTransitionTime": since}
    cluster.store.update("/api/v1/nodes", "node-1", lambda found: found["status"].update(conditions=[node]))
    cluster.asked.clear()
    with pytest.raises(
        StateError, match=r"the node node-1 does not answer: it is not ready for \d+ d \(gone\)"
    ):
        run(scheduler, app_id, "true")
    assert not any("/exec" in requested for requested in cluster.asked)
    cluster.fault("GET", "/api/v1/nodes/", 403, times=2)
    assert run(scheduler, app_id, "true")[0] == 0, "who may not look at nodes tries"


def test_a_pod_that_is_deleted_meanwhile_is_named(
    cluster: FakeCluster, scheduler: KubernetesScheduler, app_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_exec, "FIRST", 0.2)
    cluster.reaches_node_first = False
    cluster.fault("GET", "/pods/[^/]+$", 404, times=9)
    cluster.hung = True
    monkeypatch.setattr(kubernetes_exec, "PROBE", 0.2)
    with pytest.raises(StateError, match=r"the pod \S+ no longer exists"):
        run(scheduler, app_id, "true")


@pytest.mark.parametrize("data", [b"{", b"[]", b"{}", b'{"details": {"causes": [{"reason": "ExitCode"}]}}'])
def test_an_end_that_says_nothing_is_an_error(data: bytes) -> None:
    with pytest.raises(StateError, match="the result of `x` is unknown"):
        kubernetes_exec._code(data, "x")


def test_the_command(scheduler: KubernetesScheduler, app_id: str) -> None:
    handle = f"kubernetes://torchx/{app_id}"
    done = torchx("exec", f"{handle}/worker/1", "sh", "-c", "echo $POD; exit 5")
    assert (done.returncode, done.stderr) == (5, "")
    assert "-worker-1-" in done.stdout
    done = torchx("exec", "-i", handle, "--", "cat", stdin="typed\n")
    assert (done.returncode, done.stdout) == (0, "typed\n")
    assert torchx("exec", handle, "cat", stdin="typed\n").stdout == "", "nothing is handed on unasked"
    assert "a single replica" in torchx("exec", f"{handle}/worker/0,1", "true").stderr
    shown, code = on_terminal("exec", handle, "echo", "hi")
    assert (shown.strip(), code) == ("hi", 0)
