"""Missing and forbidden parts are named, with their origin and the next thing to type."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from fakecluster.cluster import TOKEN
from kubejobs import app, submit, until_all_run
from program import torchx

from torchx.errors import StateError, TorchxError, UsageError
from torchx.schedulers.kubernetes.api import client as kubernetes_client
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError, response_error
from torchx.schedulers.kubernetes.logs import read_log, sources_of
from torchx.schedulers.kubernetes.objects import find
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.scheduling.logs import LogQuery

API = "client.authentication.k8s.io/v1"


def with_plugin(cluster: FakeCluster, path: Path, monkeypatch: pytest.MonkeyPatch, **plugin: Any) -> Path:
    """Points KUBECONFIG to a kubeconfig whose user gets its credentials from a program."""
    data = json.loads(cluster.kubeconfig(path).read_text())
    data["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "args": [], **plugin}
    }
    path.write_text(json.dumps(data))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_missing_exec_plugin_is_named(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_plugin(
        cluster, tmp_path / "c", monkeypatch, command="no-such-plugin", installHint="pip it\nor so"
    )
    with pytest.raises(StateError) as caught:
        Cluster()
    message = "context `fake` gets credentials from `no-such-plugin`, which is not on PATH"
    assert caught.value.message == f"{message} (the exec plugin of user `me` in {path})"
    assert caught.value.hint == "pip it"
    with_plugin(cluster, tmp_path / "c", monkeypatch, command="./bin/none")
    with pytest.raises(StateError, match=r"from `\./bin/none`, which does not exist"):
        Cluster()
    done = torchx("list", "-s", "kubernetes")
    assert done.returncode == 1
    assert "which does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_an_exec_plugin_that_fails_is_named(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = program(tmp_path / "login", "echo 'your session has expired' >&2; exit 3")
    with_plugin(cluster, tmp_path / "c", monkeypatch, command=failing)
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(StateError, match=r"gave no credentials for context `fake`: .* has expired"):
        Cluster()
    assert logging.getLogger().handlers == handlers
    assert "ERROR" not in "".join(capfd.readouterr()), "the package's own report is not shown as well"


def test_an_exec_plugin_that_works_is_used(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {
        "apiVersion": API,
        "kind": "ExecCredential",
        "status": {"token": TOKEN},
    }
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "login", f"echo '{json.dumps(answer)}'")
    with_plugin(cluster, tmp_path / "c", monkeypatch, command="bin/login")
    assert Cluster().get("/version")["major"] == "1"


# --- queues --------------------------------------------------------------------------------------


def test_a_queue_without_kueue_is_refused(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.kueue = False
    before = cluster.store.version
    with pytest.raises(StateError, match=r"queue `team` needs Kueue, which the cluster at \S+ does not"):
        submit(scheduler, "true", queue="team")
    assert cluster.store.version == before, "nothing was made"


def test_a_queue_that_is_not_there_is_refused(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    before = cluster.store.version
    with pytest.raises(UsageError, match="namespace `default` has no queue `taem`") as caught:
        submit(scheduler, "true", queue="taem")
    assert "did you mean `team`?" in str(caught.value.hint)
    assert cluster.store.version == before
    cluster.fault("GET", "localqueues", 403)
    submit(scheduler, "true", queue="taem")  # without the right to read queues, it is left to Kueue


# --- namespaces and rights -----------------------------------------------------------------------


@pytest.fixture
def of_research(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesScheduler]:
    """A scheduler whose context has the namespace `research`."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "research", namespace="research")))
    scheduler = create_scheduler("torchx")
    yield scheduler
    scheduler.close()


def forbid(cluster: FakeCluster, method: str, path: str, resource: str, times: int = 1) -> None:
    verb = {"GET": "list", "POST": "create"}[method]
    message = f'{resource} is forbidden: User "jane" cannot {verb} resource "{resource}" in API group "batch"'
    cluster.fault(method, path, 403, times, body={"message": message, "reason": "Forbidden"})


def test_another_namespace_of_the_context_is_named(
    cluster: FakeCluster, of_research: KubernetesScheduler
) -> None:
    info = of_research.submit_dryrun(app("true"), {})
    app_id = of_research.schedule(info)
    (note,) = (note for note in info.notes if "namespace" in note)
    assert note.startswith("it runs in namespace `default`; the namespace of context fake of ")
    assert note.endswith("is `research`: -cfg namespace=research")
    assert of_research.exists(app_id.partition(":")[2]), "an id without a namespace is looked for there, too"
    info = of_research.submit_dryrun(app("true"), {"namespace": "research"})
    assert of_research.schedule(info).startswith("research:")
    assert not any("namespace" in note for note in info.notes)
    forbid(cluster, "POST", "/namespaces/default/", "services")
    with pytest.raises(
        ClusterError, match="does not let jane create services in namespace `default`"
    ) as caught:
        submit(of_research, "true")
    assert "-cfg namespace=research" in str(caught.value.hint)


def test_namespace_that_may_not_be_read_hides_no_other(
    cluster: FakeCluster, of_research: KubernetesScheduler
) -> None:
    app_id = submit(of_research, "true", namespace="research")
    forbid(cluster, "GET", "/namespaces/default/jobs", "jobs")
    assert [line.app_id for line in of_research.list()] == [app_id]
    forbid(cluster, "GET", "/namespaces/default/jobs", "jobs")
    forbid(cluster, "GET", "/namespaces/research/jobs", "jobs")
    with pytest.raises(ClusterError, match="does not let jane list jobs in namespace `research`") as caught:
        of_research.list()
    assert "kubectl auth can-i list jobs" in str(caught.value.hint)


@pytest.mark.parametrize("resource", ["jobs", "pods"])
def test_a_forbidden_read_is_one_sentence(
    cluster: FakeCluster, scheduler: KubernetesScheduler, resource: str
) -> None:
    app_id = submit(scheduler, "true")
    forbid(cluster, "GET", f"/{resource}$", resource)
    with pytest.raises(
        ClusterError, match=f"does not let jane list {resource} in namespace `default`"
    ) as caught:
        scheduler.describe(app_id)
    assert f"kubectl auth can-i list {resource}" in str(caught.value.hint)


def test_an_odd_id_is_one_sentence(cluster: FakeCluster) -> None:
    done = torchx("status", "kubernetes://torchx/Größe,b\x1b[31m")
    assert done.returncode == 2
    assert "is not a valid application id on Kubernetes" in done.stderr
    assert "\x1b" not in done.stderr
    assert cluster.asked == []


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a0: &a0 [x,x,x,x,x,x,x,x]\n"
            + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 9)),
            "aliases",
        ),
        ("a: " + "[" * 5000, "levels deep"),
        ("a: " + "x" * 1_100_000, "1,048,576 bytes$"),
    ],
    ids=["aliases", "depth", "size"],
)
def test_a_kubeconfig_has_limits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    begin = time.process_time()
    with pytest.raises(TorchxError, match=expected) as caught:
        Cluster()
    assert f"the kubeconfig {tmp_path / 'config'}" in caught.value.message
    assert time.process_time() - begin < 5


@pytest.fixture
def slow(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[bytes]]:
    """A server that takes requests and sends what the test puts into the list, 20 pieces a second."""
    pieces: list[bytes] = []
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    if stop.wait(0.05):
                        return
                    try:
                        connection.sendall(piece)
                    except OSError:
                        return
                stop.wait(30)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        cluster.url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "slow")))
        yield pieces
        stop.set()
        thread.join(timeout=5)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "head", [b"Content-Length: 100000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\r\n"]
)
def test_an_answer_that_drips_in_has_a_limit(slow: list[bytes], head: bytes) -> None:
    slow += [HEAD + head, *[b"1\r\n \r\n" if b"chunked" in head else b" "] * 2000]
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="timed out"):
        Cluster().call("GET", "/version", timeout=0.5)
    assert time.monotonic() - begin < 20


def test_a_stream_that_does_not_begin_has_a_limit(slow: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_client, "BEGIN", 0.3)
    begin = time.monotonic()
    with pytest.raises(ClusterError, match="timed out"):
        Cluster().stream("/api/v1/namespaces/default/pods/a/log", {"follow": "true"})
    with pytest.raises(ClusterError, match="timed out"):
        Cluster(connect=0.3).websocket("/api/v1/namespaces/default/pods/a/exec", [("command", "true")])
    assert time.monotonic() - begin < 20


def test_a_stream_that_falls_silent_has_a_limit(slow: list[bytes]) -> None:
    slow += [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\na\n\r\n"]
    response = Cluster().stream("/api/v1/namespaces/default/pods/a/log", silence=0.3)
    lines = kubernetes_client.lines_of(response)
    assert next(lines) == b"a\n"
    begin = time.monotonic()
    with pytest.raises(Exception, match="timed out"):
        next(lines)
    assert time.monotonic() - begin < 20


def test_an_answer_has_a_largest_size(slow: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_client, "LARGEST", 1 << 20)
    slow += [HEAD + b"Content-Length: 5000000\r\n\r\n", b" " * 2_000_000]
    with pytest.raises(ClusterError, match="is not a Kubernetes cluster: it returned more than 1 MiB"):
        Cluster().get("/version")


# --- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            'Get "https://10.0.0.7:10250/containerLogs/a/b/main": http2: client connection lost',
            "client connection lost",
        ),
        (
            'Get "https://10.0.0.7:10250/containerLogs/a/b/main": net/http: TLS handshake timeout',
            "TLS handshake timeout",
        ),
        ("error dialing backend: dial tcp 10.0.0.7:10250: i/o timeout", "i/o timeout"),
    ],
)
def test_a_lost_node_is_reported_without_its_address(message: str, expected: str) -> None:
    """Recorded as 14d: a log whose node hangs."""
    body = json.dumps({"kind": "Status", "message": message}).encode()
    error = response_error("GET", "/api/v1/namespaces/research/pods/train-0-x/log", 500, body, {})
    assert error.message == f"the node of pods/train-0-x in namespace `research` does not answer: {expected}"
    assert "10.0.0.7" not in str(error)


def test_a_log_that_breaks_off_is_one_sentence(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, "echo one; sleep 60")
    until_all_run(scheduler, app_id)
    facts = find(scheduler._clusters, app_id)
    assert facts is not None
    (source,) = sources_of(facts, LogQuery())

    class Broken:
        """A response whose connection ends within a line."""

        def stream(self, size: int) -> Iterator[bytes]:
            yield b"2026-11-21T01:11:33.5Z one\n2026"
            raise TimeoutError

        def close(self) -> None:
            pass

    class Connected:
        def stream(self, *_: Any, **__: Any) -> Broken:
            return Broken()

    lines = read_log(Connected(), facts, source, 0, LogQuery())  # type: ignore[arg-type]
    assert next(lines)[2] == b"one\n"
    with pytest.raises(ClusterError, match=r"the log of pod \S+ broke off: it timed out"):
        next(lines)
