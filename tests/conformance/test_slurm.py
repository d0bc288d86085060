"""The scheduler slurm passes the conformance suite, on a real controller with four nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slurms import state_folder

from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs.app import AppDryRunInfo
from torchx.testing import (
    AbilityConformance,
    Meaning,
    RetryCases,
    SchedulerConformance,
    ServiceConformance,
    SweepConformance,
)
from torchx.testing.retry_cases import few

pytestmark = pytest.mark.slurm

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"


def create() -> Any:
    return create_scheduler("torchx")


class TestSlurm(SchedulerConformance, AbilityConformance, SweepConformance):
    factory = staticmethod(create)
    cfg = {"requeue": False}  # noqa: RUF012  # a retry through the queue waits until a credential expires
    begins_within = 1.0
    shortest_limit = ""  # a minute: tests/limits/test_slurm_limits.py
    page = PAGE
    column = "slurm"
    fields = {  # noqa: RUF012
        "image": Meaning.IGNORED,
        "min_replicas": Meaning.WARNED,
        "resource.devices": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
        "mounts": Meaning.WARNED,
    }
    probes = {"metadata": {"metadata": {"slurm": {"constraint": "a100"}}}}  # noqa: RUF012

    def request_text(self, info: AppDryRunInfo[Any]) -> str:
        return repr(info).replace(info.request.token, "TOKEN")


class TestRetries(RetryCases):
    factory = staticmethod(create)
    cfg = {"requeue": False}  # noqa: RUF012
    begins_within = 1.0
    patience = 120.0
    retry_cases = few(1)


class TestRetriesOnDisksOfNodes(TestRetries):
    """The nodes do not share `job_dir`."""

    cfg = {"requeue": False, "job_dir": str(state_folder() / "disk" / "retries")}  # noqa: RUF012


class TestServices(ServiceConformance):
    factory = staticmethod(create)
    cfg = {"requeue": False}  # noqa: RUF012
    begins_within = 1.0
    patience = 120.0
