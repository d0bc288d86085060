"""``local_cwd`` is a scheduler like any other: it passes the conformance suite."""

from __future__ import annotations

from torchx.schedulers.local_scheduler import LocalScheduler, create_cwd_scheduler
from torchx.testing import AbilityConformance, SchedulerConformance


def create() -> LocalScheduler:
    return create_cwd_scheduler("torchx")


class TestLocalCwd(SchedulerConformance):
    factory = staticmethod(create)


class TestAbilities(AbilityConformance):
    factory = staticmethod(create)
