"""What `torchx doctor` finds of a cluster."""

from __future__ import annotations

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.findings import Verdict


def test_a_cluster_shows_its_version_and_what_it_has(scheduler: KubernetesScheduler) -> None:
    reported = {finding.what: finding for finding in scheduler.diagnose()}
    assert reported["cluster"].verdict is Verdict.GOOD
    assert "Kubernetes v1." in reported["cluster"].detail
    assert {"JobSet", "Volcano", "Kueue"} <= reported.keys()
