"""The scheduler gridengine passes the conformance suite, on a real master with three hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from following import FollowingConformance

from torchx.schedulers.gridengine.scheduler import create_scheduler
from torchx.specs.app import AppDryRunInfo
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

pytestmark = pytest.mark.gridengine

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"
CFG = {"pe": "mpi"}


def create() -> Any:
    return create_scheduler("torchx")


class TestGridEngine(SchedulerConformance, AbilityConformance, SweepConformance):
    factory = staticmethod(create)
    cfg = CFG
    begins_within = 3.0
    patience = 60.0
    page = PAGE
    column = "gridengine"
    fields = {  # noqa: RUF012
        "image": Meaning.IGNORED,
        "min_replicas": Meaning.WARNED,
        "resource.devices": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
        "resource.memMB": Meaning.WARNED,
        "mounts": Meaning.WARNED,
        "metadata": Meaning.IGNORED,
    }
    lacks = {Ability.SUBMITS_MANY}  # noqa: RUF012

    def request_text(self, info: AppDryRunInfo[Any]) -> str:
        return repr(info).replace(info.request.token, "TOKEN")


class TestRetries(RetryCases):
    factory = staticmethod(create)
    cfg = CFG
    begins_within = 3.0
    patience = 120.0
    at_once = 2
    shares_files = True
    retry_cases = sample(4)
    fields = {"mounts": Meaning.WARNED}  # noqa: RUF012


class TestServices(ServiceConformance):
    factory = staticmethod(create)
    cfg = CFG
    begins_within = 3.0
    patience = 120.0


class TestFollowing(FollowingConformance):
    factory = staticmethod(create)
    cfg = CFG
    begins_within = 3.0
    patience = 120.0
