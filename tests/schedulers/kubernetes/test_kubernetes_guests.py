"""Pods and Jobs made by hand with the labels of an application do not belong to it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fakecluster import FakeCluster, store
from kubejobs import role, submit, until_all_run, until_ended
from support import wait_until

from torchx.masking import SecretValue
from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.cancel import kill_objects
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.schedulers.shared.clock import EngineClock
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.status import AppState, ReplicaStatus

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


def make_guests(cluster: FakeCluster) -> None:
    """Creates a pod and a Job as a user does who copies those of an application, with other programs."""
    (pod,) = cluster.objects("pods")[:1]
    labels = {k: v for k, v in pod["metadata"]["labels"].items() if "controller-uid" not in k}
    annotations = pod["metadata"]["annotations"]
    metadata: dict[str, Any] = {"name": "guest", "labels": labels, "annotations": annotations}
    container = {**pod["spec"]["containers"][0], "command": ["sh", "-c", "echo guest; exit 9"], "args": []}
    spec = {**pod["spec"], "containers": [container]}
    cluster.store.create(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    job = copy.deepcopy(cluster.objects("jobs")[0])
    job["metadata"] = {name: job["metadata"][name] for name in ("labels", "annotations")} | {"name": "copied"}
    job["spec"]["template"]["spec"]["containers"] = [container]
    for labelled in (job["spec"]["template"]["metadata"], job["metadata"]):
        labelled["labels"] = {k: v for k, v in labelled["labels"].items() if "controller-uid" not in k}
    job["spec"].pop("selector", None)
    job.pop("status", None)
    cluster.store.create(JOBS, {**job, "status": {}})


def has_failed(cluster: FakeCluster) -> bool:
    copied = cluster.store.get(JOBS, "copied")
    return bool(
        (copied.get("status") or {}).get("failed") or (copied.get("status") or {}).get("failedIndexes")
    )


def replicas(described: DescribeAppResponse | None) -> list[ReplicaStatus]:
    assert described is not None
    return [replica for one in described.roles_statuses for replica in one.replicas]


def test_copied_labels_change_nothing(cluster: FakeCluster, scheduler: KubernetesScheduler) -> None:
    app_id = submit(scheduler, role("echo up; exec sleep 600", num_replicas=2))
    until_all_run(scheduler, app_id)
    make_guests(cluster)
    wait_until(lambda: has_failed(cluster), "the copied Job has failed")
    described = scheduler.describe(app_id)
    assert [r.state for r in replicas(described)] == [AppState.RUNNING] * 2
    (row,) = scheduler.list()
    assert row.state is AppState.RUNNING
    assert scheduler.wait(app_id, 0.5) is False
    assert [list(scheduler.log_iter(app_id, "worker", n)) for n in (0, 1)] == [["up\n"]] * 2
    scheduler.kill(app_id)
    assert until_ended(scheduler, app_id).state is AppState.CANCELLED
    assert [cluster.store.get(PODS, "guest")["metadata"].get("deletionTimestamp")] == [None]
    assert not cluster.store.get(JOBS, "copied")["spec"].get("suspend")
    scheduler.delete(app_id)
    assert [job["metadata"]["name"] for job in cluster.objects("jobs")] == ["copied"]
    assert (scheduler.describe(app_id), list(scheduler.list())) == (None, [])
    assert "guest" in [pod["metadata"]["name"] for pod in cluster.objects("pods")]


class Recorder(Cluster):
    """A cluster that only records the requests."""

    def __init__(self) -> None:
        self.clock = EngineClock()
        self.requests: list[tuple[str, str]] = []

    def call(self, method: str, path: str, *args: Any, **named: Any) -> Any:
        self.requests.append((method, path))
        return {}


def test_a_kill_on_volcano_deletes_single_pods() -> None:
    job = {"metadata": {"name": "train", "uid": "1"}, "status": {"state": {"phase": "Running"}}}
    pods = [
        {"metadata": {"name": f"train-{phase}"}, "status": {"phase": phase}}
        for phase in ("Running", "Failed")
    ]
    recorder = Recorder()
    kill_objects(recorder, Facts("default", "train", "volcano", [job], [], pods))
    assert [path for method, path in recorder.requests if method == "DELETE"] == [f"{PODS}/train-Running"]


PARTS = ("services", "configmaps", "secrets")


def copy_parts(cluster: FakeCluster) -> dict[str, Any]:
    """Copies a service and a secret of the application as a user does, by hand and for another owner."""
    maps = "/api/v1/namespaces/default/configmaps"
    other = cluster.store.create(maps, {"metadata": {"name": "other"}})["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": other["uid"]}
    copies: dict[str, Any] = {"other": other}
    for resource in ("services", "secrets"):
        path = f"/api/v1/namespaces/default/{resource}"
        for owners in ({}, {"ownerReferences": [owner]}):
            thing = copy.deepcopy(cluster.objects(resource)[0])
            labels = thing["metadata"]["labels"]
            name = f"copied-{len(copies)}"
            metadata = {"name": name, "labels": labels, **owners}
            copies[name] = cluster.store.create(path, {**thing, "metadata": metadata})["metadata"]
    return copies


def has_restarted(scheduler: KubernetesScheduler, app_id: str) -> bool:
    attempts = [r.attempts[-1] for r in replicas(scheduler.describe(app_id)) if r.attempts]
    return [(a.number, a.state) for a in attempts] == [(2, AppState.RUNNING)] * 2


@pytest.mark.parametrize("allowed", [True, False])
def test_copied_services_and_secrets_stay_as_they_are(
    allowed: bool, cluster: FakeCluster, scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of all replicas, and after the end; also if the submission may set no owners."""
    if not allowed:
        cluster.fault("PATCH", "/(services|secrets)/", 403, times=99)
    script = 'test "$TORCHX_ATTEMPT" = 2 || exit 1; exec sleep 600'
    worker = role(script, num_replicas=2, max_retries=1, env={"TOKEN": SecretValue("a-secret-value")})
    app_id = submit(scheduler, worker, retry_backoff=3.0)
    monkeypatch.setattr(store, "AHEAD", 60.0)  # the copies are made later
    copies = copy_parts(cluster)
    wait_until(lambda: scheduler.wait(app_id, 1.0) or has_restarted(scheduler, app_id), "the restart")
    assert has_restarted(scheduler, app_id)
    scheduler.delete(app_id)
    left = {t["metadata"]["name"]: t["metadata"] for each in PARTS for t in cluster.objects(each)}
    assert left == copies
