"""What the tests of the scheduler ``kubernetes`` get: a cluster of their own that KUBECONFIG leads to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakecluster import FakeCluster

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster without JobSets."""
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        yield cluster


@pytest.fixture
def scheduler(cluster: FakeCluster) -> Iterator[KubernetesScheduler]:
    scheduler = create_scheduler("torchx")
    yield scheduler
    scheduler.close()
