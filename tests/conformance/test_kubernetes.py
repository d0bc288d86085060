"""``kubernetes`` is a scheduler like any other: it passes the conformance suite on a cluster of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakecluster import FakeCluster

from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler, create_scheduler
from torchx.testing import AbilityConformance, SchedulerConformance

IMAGE = "registry.example.com/shell"
"""Any: the node of the tests' cluster runs what is on this machine."""


def create() -> KubernetesScheduler:
    return create_scheduler("torchx")


@pytest.fixture(autouse=True)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCluster]:
    """A cluster that KUBECONFIG leads to, in other processes too."""
    with FakeCluster(jobsets=getattr(request.cls, "jobsets", False)) as cluster:
        path = cluster.kubeconfig(tmp_path_factory.mktemp("kube") / "config")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield cluster


class TestJobs(SchedulerConformance):
    factory = staticmethod(create)
    image = IMAGE
    cfg = {"grace_period": 1.0}  # noqa: RUF012  # of the suite


class TestAbilities(AbilityConformance):
    factory = staticmethod(create)
    image = IMAGE
    cfg = {"grace_period": 1.0}  # noqa: RUF012


class TestJobSets(SchedulerConformance):
    factory = staticmethod(create)
    image = IMAGE
    jobsets = True
    cfg = {"grace_period": 1.0, "kind": "jobset"}  # noqa: RUF012
