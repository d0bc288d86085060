"""``local_cwd`` is a scheduler like any other: it passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from following import FollowingConformance

from torchx.schedulers.local.scheduler import LocalScheduler, create_cwd_scheduler
from torchx.testing import (
    Ability,
    AbilityConformance,
    Meaning,
    RetryCases,
    SchedulerConformance,
    ServiceConformance,
    SweepConformance,
)
from torchx.testing.retry_cases import sample

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"


def create() -> LocalScheduler:
    return create_cwd_scheduler("torchx")


class OnProcesses:
    """What holds for all replicas that are processes of this machine."""

    cfg = {"retry_backoff": 0.1}  # noqa: RUF012  # as the suite declares it
    begins_within = 0.5
    fields = {  # noqa: RUF012
        "min_replicas": Meaning.WARNED,
        "resource.cpu": Meaning.WARNED,
        "resource.memMB": Meaning.WARNED,
        "resource.gpu": Meaning.WARNED,
        "resource.devices": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
        "mounts": Meaning.WARNED,
    }
    probes = {"metadata": {"metadata": {"requires": {"no-such-program": "write it"}}}}  # noqa: RUF012
    page = PAGE


class TestLocalCwd(OnProcesses, SchedulerConformance):
    factory = staticmethod(create)
    fields = {**OnProcesses.fields, "image": Meaning.IGNORED}  # noqa: RUF012
    column = "local_cwd"


class TestRetries(OnProcesses, RetryCases):
    factory = staticmethod(create)
    cfg = {"retry_backoff": 0.02, "grace_period": 5.0}  # noqa: RUF012
    shares_files = True
    retry_cases = sample(34)


class TestAbilities(OnProcesses, AbilityConformance):
    factory = staticmethod(create)


class TestSweeps(OnProcesses, SweepConformance):
    factory = staticmethod(create)
    lacks = (Ability.SUBMITS_MANY,)  # the queue starts the runs


class TestServices(OnProcesses, ServiceConformance):
    factory = staticmethod(create)


class TestFollowing(OnProcesses, FollowingConformance):
    factory = staticmethod(create)
