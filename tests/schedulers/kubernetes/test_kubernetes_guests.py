"""Pods and Jobs made by hand with the labels of an application do not belong to it."""

from __future__ import annotations

import copy
from typing import Any

from fakecluster import FakeCluster
from kubejobs import role, submit, until_all_run, until_ended
from support import wait_until

from torchx.schedulers.kubernetes.api.client import Cluster
from torchx.schedulers.kubernetes.cancel import kill_objects
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
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
        self._ahead = 0.0
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
