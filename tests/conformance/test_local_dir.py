"""``local_dir`` is a scheduler like any other: it passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from test_local_cwd import OnProcesses

from torchx.schedulers.local.scheduler import LocalScheduler, create_dir_scheduler
from torchx.testing import AbilityConformance, SchedulerConformance

IMAGE = str(Path(__file__).parent)
"""Any folder: the programs that are not in it are those of this machine."""


def create() -> LocalScheduler:
    return create_dir_scheduler("torchx")


class TestLocalDir(OnProcesses, SchedulerConformance):
    factory = staticmethod(create)
    image = IMAGE
    column = "local_dir"


class TestAbilities(OnProcesses, AbilityConformance):
    factory = staticmethod(create)
    image = IMAGE
