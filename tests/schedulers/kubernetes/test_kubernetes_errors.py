"""One sentence for whatever is in the way: the recorded refusals, and a cluster that is not there."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fakecluster import FakeCluster
from kubejobs import app, submit

from torchx.errors import AbsentError, StateError, TorchxError, UsageError
from torchx.schedulers.kubernetes.api import client as kubernetes_client
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.api.errors import ClusterError, response_error
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "resources" / "kubernetes" / "errors.json").read_text(encoding="utf-8")
)


def sentence(name: str) -> ClusterError:
    found = RECORDED[name]
    body = found["body"] if isinstance(found["body"], str) else json.dumps(found["body"])
    return response_error(found["method"], found["path"], found["status"], body.encode(), {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no-jobsets", "the cluster has no API of jobset.x-k8s.io/v1alpha2"),
        ("no-namespace", "the cluster has no namespace `nosuch`"),
        (
            "bad-name",
            'the cluster refuses Job Train_E2: metadata.name: Invalid value: "Train_E2": a lowercase',
        ),
        ("may-not-create", "the cluster does not let jane create jobs in namespace `research`"),
        ("may-not-read-logs", "the cluster does not let jane get pods/log in namespace `research`"),
        ("bad-token", "the cluster does not accept your credentials"),
        ("no-quota", "namespace `team-q` has no quota left: exceeded quota: q, requested: count/jobs"),
        ("namespace-goes-away", "namespace `team-q` is being deleted"),
        ("being-deleted", "is still being deleted"),
    ],
)
def test_a_refusal_is_one_sentence(name: str, expected: str) -> None:
    error = sentence(name)
    assert expected in error.message
    assert "\n" not in error.message
    assert error.hint


def test_all_causes_are_reported_without_the_grammar_of_names() -> None:
    result = sentence("two-causes").message
    assert "containers[0].name" in result
    assert "containers[0].image: Required value" in result
    assert "regex" not in result


def test_every_recorded_refusal_is_reported() -> None:
    for name in RECORDED:
        assert sentence(name).message, name
        assert "None" not in sentence(name).message, name


# --- no cluster ----------------------------------------------------------------------------------


def test_without_a_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)  # what is not set up needs no package to say so
    with pytest.raises(AbsentError, match="no Kubernetes cluster is set up here"):
        Cluster()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nosuch"))
    with pytest.raises(StateError, match=r"no kubeconfig at .*nosuch \(from KUBECONFIG\)") as caught:
        Cluster()
    assert not isinstance(caught.value, AbsentError), "somebody said that there is one"


def test_without_the_package(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    scheduler = create_scheduler("torchx")
    assert "kind: Job" in repr(scheduler.submit_dryrun(app("true"), {})), "a dry run needs none"
    with pytest.raises(StateError, match="needs the package") as caught:
        submit(scheduler, "true")
    assert caught.value.hint == "pip install 'kubernetes>=28.1'"


def test_a_context_that_is_not_there(scheduler: KubernetesScheduler) -> None:
    with pytest.raises(UsageError, match="no context `fakke`") as caught:
        submit(scheduler, "true", context="fakke")
    assert "did you mean `fake`?" in str(caught.value.hint)


def test_a_kubeconfig_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for text in ("", "a: [", "[]", "kind: Config\n", "current-context: x\ncontexts: []\n"):
        (tmp_path / "config").write_text(text)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        with pytest.raises(TorchxError, match=r"config cannot be (used|read)"):
            Cluster()


def test_a_port_without_a_listener(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    cluster.close()
    with pytest.raises(
        ClusterError, match=r"no cluster answers at http://.* \(connection refused\)"
    ) as caught:
        submit(scheduler, "true")
    assert "context fake of" in str(caught.value.hint)


def test_a_host_that_does_not_exist(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.url = "https://no-such-host.invalid:6443"
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "other")))
    with pytest.raises(ClusterError, match=r"no cluster answers at https://no-such-host\.invalid:6443"):
        Cluster().get("/version")


def test_one_that_takes_connections_and_says_nothing(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        cluster.url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "other")))
        begin = time.monotonic()
        with pytest.raises(ClusterError, match="timed out"):
            Cluster().call("GET", "/version", timeout=0.3)
        assert time.monotonic() - begin < 20


def test_one_that_is_no_cluster(cluster: FakeCluster) -> None:
    cluster.fault("GET", "^/version$", 200, body=[])  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="is not a Kubernetes cluster"):
        Cluster().get("/version")


def test_a_wrong_token(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = cluster.kubeconfig(tmp_path / "other", token="old")
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(ClusterError, match="does not accept your credentials"):
        list(create_scheduler("torchx").list())


# --- what passes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("do", [429, 500, 503, "drop"])
def test_a_temporary_error_is_retried(cluster: FakeCluster, do: int | str) -> None:
    cluster.fault("GET", "^/version$", do, times=2, headers=(("Retry-After", "0"),))
    assert Cluster().get("/version")["major"] == "1"
    assert cluster.asked == ["GET /version"] * 3


def test_what_does_not_pass_ends_in_time(cluster: FakeCluster) -> None:
    cluster.fault("GET", "^/version$", 500, times=1000)
    begin = time.monotonic()
    with pytest.raises(ClusterError):
        Cluster().call("GET", "/version", timeout=1.0)
    assert time.monotonic() - begin < 20


def test_a_change_is_not_made_twice(cluster: FakeCluster) -> None:
    cluster.fault("PATCH", "", 500, times=10)
    with pytest.raises(ClusterError):
        Cluster().patch("/api/v1/namespaces/default/pods/a", {})
    assert len(cluster.asked) == 1


def test_long_lists_come_in_pages(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/api/v1/namespaces/default/services"
    for number in range(7):
        cluster.store.create(path, {"metadata": {"name": f"s-{number}"}, "spec": {}})
    monkeypatch.setattr(kubernetes_client, "PAGE", 3)
    client = Cluster()
    assert len(client.items(path)) == 7
    assert cluster.asked == [f"GET {path}"] * 3
    # the list is older than the cluster remembers: from its start once more
    cluster.asked.clear()
    original = cluster.page
    cluster.fault("GET", "services", 200, body={"items": [], "metadata": {"continue": "3"}})
    cluster.fault("GET", "services", 410)
    assert len(client.items(path)) == 7
    assert cluster.page == original


def test_no_secret_is_shown(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = "very-secret-token"
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "other", token=secret)))
    client = Cluster()
    for do in (None, 403, "drop"):
        if do is not None:
            cluster.fault("GET", "", do, times=9)
        with pytest.raises(TorchxError) as caught:
            client.get("/version")
        assert secret not in f"{caught.value}{caught.value!r}{caught.value.__dict__}"
