"""The scheduler slurm passes the conformance suite, on a real controller with four nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from following import FollowingConformance
from slurms import state_folder

from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.specs.app import AppDryRunInfo, RetryPolicy
from torchx.testing import (
    AbilityConformance,
    Meaning,
    RetryCases,
    SchedulerConformance,
    ServiceConformance,
    SweepConformance,
)
from torchx.testing.retry_cases import ALL, case_of, sample
from torchx.testing.retry_model import predict

pytestmark = pytest.mark.slurm

PAGE = Path(__file__).parents[2] / "docs" / "schedulers.md"


def restarts_all(seed: int) -> bool:
    """Returns True if a failure in a case restarts all replicas, and no replica starts a third time."""
    case = case_of(seed)
    return RetryPolicy.APPLICATION in case.policies and max(predict(case).attempts.values()) == 2


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
    at_once = 2  # of each process of the tests: more jobs would wait for each other on eight CPUs
    shares_files = True
    retry_cases = sample(4)
    fields = {"mounts": Meaning.WARNED}  # noqa: RUF012


class TestRequeues(TestRetries):
    """Retries through the queue: each waits until a credential has expired, so these are few."""

    cfg: ClassVar[dict[str, Any]] = {}
    patience = 240.0
    retry_cases = [seed for seed in ALL if len(case_of(seed).roles) > 1 and restarts_all(seed)][:4]


class TestRetriesOnDisksOfNodes(TestRetries):
    """The nodes do not share `job_dir`."""

    cfg = {"requeue": False, "job_dir": str(state_folder() / "disk" / "retries")}  # noqa: RUF012


class TestServices(ServiceConformance):
    factory = staticmethod(create)
    cfg = {"requeue": False}  # noqa: RUF012
    begins_within = 1.0
    patience = 120.0


class TestFollowing(FollowingConformance):
    factory = staticmethod(create)
    cfg = {"requeue": False}  # noqa: RUF012
    begins_within = 1.0
    patience = 120.0
