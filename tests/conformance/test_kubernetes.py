"""``kubernetes`` is a scheduler like any other: it passes the conformance suite on a cluster of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fakecluster import FakeCluster
from following import FollowingConformance
from test_local_cwd import PAGE

from torchx.schedulers.kubernetes.names import APP
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.specs.app import AppDryRunInfo, RetryPolicy
from torchx.testing import AbilityConformance, RetryCases, SchedulerConformance, ServiceConformance
from torchx.testing.fields import FieldConformance, Meaning
from torchx.testing.harness import Ability
from torchx.testing.retries import RetryConformance
from torchx.testing.retry_model import Case
from torchx.testing.sweeps import SweepConformance

IMAGE = "registry.example.com/shell"
"""Any: the node of the tests' cluster runs what is on this machine."""

SCOPES = [RetryPolicy.APPLICATION, RetryPolicy.ROLE, RetryPolicy.REPLICA]

FIELDS_OF_JOBS = {
    "resource.tags": Meaning.IGNORED,
    "min_replicas": Meaning.WARNED,
    "retry_policy=REPLICA": Meaning.WARNED,  # a Job knows no causes
}


def create() -> KubernetesScheduler:
    return create_scheduler("torchx")


@pytest.fixture(autouse=True)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCluster]:
    """A cluster that KUBECONFIG leads to, in other processes too."""
    with FakeCluster(jobsets=request.cls is TestJobSets) as cluster:
        path = cluster.kubeconfig(tmp_path_factory.mktemp("kube") / "config")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield cluster


class OnKubernetes:
    """What holds for every kind: pods have one log for both streams, and it goes with them."""

    factory = staticmethod(create)
    image = IMAGE
    cfg = {"grace_period": 1.0}  # noqa: RUF012  # as the suite declares it
    lacks = (Ability.STREAMS, Ability.EARLIER_LOGS)
    begins_within = 1.0
    probes = {"metadata": {"metadata": {"kubernetes": {"spec": {"hostNetwork": True}}}}}  # noqa: RUF012

    def request_text(self, info: AppDryRunInfo[Any]) -> str:
        """The manifests without the record of the application."""
        for manifest in info.request.manifests:
            manifest["metadata"].get("annotations", {}).pop(APP, None)
        return repr(info)


class TestJobs(OnKubernetes, SchedulerConformance):
    cfg = {"grace_period": 1.0, "retry_backoff": 0.1}  # noqa: RUF012
    page = PAGE
    column = "kubernetes"
    fields = FIELDS_OF_JOBS


class TestRetries(OnKubernetes, RetryCases):
    cfg = {"grace_period": 1.0, "retry_backoff": 0.1, "kind": "job"}  # noqa: RUF012
    shares_files = True

    def expresses(self, case: Case) -> bool:
        """After a restart of all, Jobs count the retries of single replicas from 0; a note says so."""
        by_job, restarts = False, False
        for role in case.roles:
            single = role.policy is RetryPolicy.REPLICA and role.replicas > 1
            by_job = by_job or (single and role.max_retries > 0)
            restarts = restarts or (role.policy is RetryPolicy.APPLICATION and role.max_retries > 0)
        order = [case.roles[number].policy for number, _ in case.failures]
        return not (by_job and restarts) or order == sorted(order, key=SCOPES.index)


class TestAbilities(OnKubernetes, AbilityConformance):
    pass


class TestJobSets(OnKubernetes, FieldConformance):
    """Where the kind matters: the meaning of each field, restarts of the whole, the end of the whole."""

    cfg = {"grace_period": 1.0, "kind": "jobset"}  # noqa: RUF012
    fields = {"resource.tags": Meaning.IGNORED, "min_replicas": Meaning.WARNED}  # noqa: RUF012
    test_retries_are_counted = RetryConformance.test_retries_are_counted
    test_one_failure_ends_all = RetryConformance.test_one_failure_ends_all


class TestServices(OnKubernetes, ServiceConformance):
    cfg = {"grace_period": 1.0, "retry_backoff": 0.1}  # noqa: RUF012


class TestSweeps(OnKubernetes, SweepConformance):
    pass


class TestFollowing(OnKubernetes, FollowingConformance):
    pass
