"""The conformance suite on the cluster that KUBECONFIG leads to: `make test-kubernetes`.

It works in a namespace of its own, which is removed at the end. TORCHX_TEST_IMAGE names the image: one with a
POSIX shell and the usual small programs that the cluster can pull; ten replicas at once is the most it needs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
from support import wait_until
from test_kubernetes import FIELDS_OF_JOBS, OnKubernetes

from torchx.errors import StateError
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.facts import JOBSET
from torchx.testing import AbilityConformance, SchedulerConformance, ServiceConformance
from torchx.testing.fields import Meaning
from torchx.testing.retries import RetryConformance

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

IMAGE = os.environ.get("TORCHX_TEST_IMAGE") or "docker.io/library/python:3.12-alpine"
READY = 60.0
"""Seconds in which a new namespace gets its service account, without which it takes no pods."""
PULL = 600.0
"""Seconds that anything may take: the first pod on a node waits for its image."""


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    """A namespace of the tests' own."""
    cluster = Cluster()
    name = f"torchx-test-{secrets.token_hex(4)}"
    cluster.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        account = path_of("v1", "serviceaccounts", name, "default")
        wait_until(lambda: cluster.find(account), f"{name} has a service account", READY)
        yield name
    finally:
        cluster.delete(f"/api/v1/namespaces/{name}")
        cluster.close()


@pytest.fixture(autouse=True)
def in_namespace(request: pytest.FixtureRequest, namespace: str) -> None:
    request.cls.cfg = {**request.cls.options, "namespace": namespace}


class OnACluster(OnKubernetes):
    """What a real cluster needs more of: time."""

    image = IMAGE
    options = {"grace_period": 2.0, "reserved_millicpu": 950}  # noqa: RUF012  # as the suite declares it
    patience = PULL
    begins_within = 10.0


class TestJobs(OnACluster, SchedulerConformance):
    fields = FIELDS_OF_JOBS
    options = {**OnACluster.options, "kind": "job"}  # noqa: RUF012


class TestAbilities(OnACluster, AbilityConformance):
    pass


class TestServices(OnACluster, ServiceConformance):
    pass


class TestJobSets(OnACluster, RetryConformance):
    fields = {"resource.tags": Meaning.IGNORED, "min_replicas": Meaning.WARNED}  # noqa: RUF012
    options = {**OnACluster.options, "kind": "jobset"}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _only_where_there_are_some(self) -> None:
        try:
            known = Cluster().find(f"/apis/{JOBSET}")
        except StateError as error:
            pytest.fail(str(error))
        if known is None:
            pytest.skip("this cluster has no JobSets: https://jobset.sigs.k8s.io/docs/installation")
