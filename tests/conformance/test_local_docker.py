"""``local_docker`` is a scheduler like any other: it passes the conformance suite, on a real engine."""

from __future__ import annotations

from typing import Any

import pytest
from engine import IMAGE
from following import FollowingConformance
from test_local_cwd import PAGE

from torchx.schedulers.docker.scheduler import DockerScheduler, create_scheduler
from torchx.scheduling.base import Scheduler
from torchx.specs.status import AppState
from torchx.testing import (
    Ability,
    AbilityConformance,
    Meaning,
    RetryCases,
    SchedulerConformance,
    ServiceConformance,
    SweepConformance,
)
from torchx.testing.harness import Harness

pytestmark = pytest.mark.docker


def create() -> DockerScheduler:
    return create_scheduler("torchx")


class InContainers:
    """What holds for replicas in containers."""

    factory = staticmethod(create)
    image = IMAGE
    cfg = {"grace_period": 2.0, "retry_backoff": 0.1}  # noqa: RUF012  # as the suite declares it
    begins_within = 1.0
    fields = {  # noqa: RUF012
        "min_replicas": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
    }
    probes = {"metadata": {"metadata": {"local_docker": {"user": "1000:1000"}}}}  # noqa: RUF012


class TestLocalDocker(InContainers, SchedulerConformance):
    page = PAGE
    column = "local_docker"


class TestRetries(InContainers, RetryCases):
    shares_files = True


class TestAbilities(InContainers, AbilityConformance):
    pass


class TestSweeps(InContainers, SweepConformance):
    lacks = (Ability.SUBMITS_MANY,)  # the queue starts the runs


class TestServices(InContainers, ServiceConformance):
    pass


class TestVolumes(InContainers, Harness):
    def test_replicas_share_the_volume_for_checkpoints(self, scheduler: Scheduler[Any]) -> None:
        """Podman rejects containers that create the same volume at the same time."""
        script = 'echo here > "$TORCHX_CHECKPOINT_DIR/$ID"; test -s "$TORCHX_CHECKPOINT_DIR/$ID"'
        role = self.role(script, num_replicas=12, max_retries=1, env={"ID": "${replica_id}"})
        assert self.run(scheduler, self.app(role)).state is AppState.SUCCEEDED


class TestFollowing(InContainers, FollowingConformance):
    pass
