"""Tests of the measurements of pods, with and without a metrics API."""

from __future__ import annotations

from typing import Any

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit, until_all_run, until_ended

from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.measurement import quantity, sample_of
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.measurement import Requested

METRICS = {"cpu": "250m", "memory": "65536Ki"}


@pytest.fixture
def app_id(scheduler: KubernetesScheduler, cluster: FakeCluster) -> str:
    cluster.metrics = METRICS
    found = submit(scheduler, role("sleep 60", num_replicas=2), role("sleep 60", "helper"))
    until_all_run(scheduler, found)
    return found


def test_running_pods_are_measured(scheduler: KubernetesScheduler, app_id: str) -> None:
    found = scheduler.usage(app_id)
    assert found is not None
    assert [replica.name for replica in found.replicas] == ["worker/0", "worker/1", "helper/0"]
    for replica in found.replicas:
        assert (replica.attempt, replica.running) == (1, True)
        assert (replica.total.cpu, replica.total.memory, replica.total.span) == (0.25, 64 << 20, 15.2)
        assert replica.total.gpu is replica.total.output is None, "unknown"
        assert replica.requested == Requested(1, 256 << 20, None)
    assert found.now is not None
    assert found.now.cpu == 0.75
    assert set(found.current) == {"cpu", "memory"}


@pytest.mark.parametrize("status", [403, 404, 503])
def test_a_cluster_without_metrics_has_no_measurements(
    scheduler: KubernetesScheduler, cluster: FakeCluster, app_id: str, status: int
) -> None:
    cluster.metrics = None
    if status != 404:
        cluster.fault("GET", "metrics.k8s.io", status, times=9)
    assert scheduler.usage(app_id) is None


def test_a_cluster_that_fails_is_an_error(
    scheduler: KubernetesScheduler, cluster: FakeCluster, app_id: str
) -> None:
    cluster.fault("GET", "metrics.k8s.io", 401, times=9)
    with pytest.raises(ClusterError):
        scheduler.usage(app_id)


def test_ended_and_unknown_applications_have_no_measurements(
    scheduler: KubernetesScheduler, cluster: FakeCluster
) -> None:
    cluster.metrics = METRICS
    ended = submit(scheduler, "true")
    until_ended(scheduler, ended)
    assert scheduler.usage(ended) is None
    assert scheduler.usage("default:unknown") is None


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"containers": 3},
        {"containers": [3, {}]},
        {"containers": [{"usage": {"cpu": "1"}}]},
        {"containers": [{"usage": {"memory": "-5Mi"}}]},
        {"containers": [{"usage": {"memory": ["1"]}}]},
    ],
)
def test_malformed_metrics_are_unknown(metrics: Any) -> None:
    assert sample_of(metrics) is None


def test_containers_are_added_up() -> None:
    found = sample_of({"containers": [{"usage": {"cpu": "1", "memory": "1Gi"}}] * 2, "window": "x"})
    assert found is not None
    assert (found.cpu, found.memory) == (2.0, 2 << 30)
    without_cpu = sample_of({"containers": [{"usage": {"memory": "1k"}}]})
    assert without_cpu is not None
    assert (without_cpu.cpu, without_cpu.memory) == (None, 1000)


@pytest.mark.parametrize("text", ["", "Mi", "1Xi", "nan", "inf", "1e400", None, "1.2.3", "-1"])
def test_invalid_quantities_are_unknown(text: object) -> None:
    assert quantity(text) is None
