"""``local_docker`` is a scheduler like any other: it passes the conformance suite, on a real engine."""

from __future__ import annotations

import pytest
from engine import IMAGE

from torchx.schedulers.docker_scheduler import DockerScheduler, create_scheduler
from torchx.testing import AbilityConformance, SchedulerConformance

pytestmark = pytest.mark.docker


def create() -> DockerScheduler:
    return create_scheduler("torchx")


class TestLocalDocker(SchedulerConformance):
    factory = staticmethod(create)
    image = IMAGE


class TestAbilities(AbilityConformance):
    factory = staticmethod(create)
    image = IMAGE
