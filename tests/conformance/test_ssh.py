"""The example ``examples/ssh_scheduler`` passes the conformance suite, against an sshd on this machine."""

from __future__ import annotations

import getpass
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from project.sources import ROOT
from sshd import ssh_server

from torchx.scheduling.base import Scheduler
from torchx.testing import Ability, AbilityConformance, Meaning, SchedulerConformance

EXAMPLE = ROOT / "examples" / "ssh_scheduler"


def create() -> Scheduler[Any]:
    spec = importlib.util.spec_from_file_location("torchx_ssh", EXAMPLE / "torchx_ssh.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["torchx_ssh"] = module
    spec.loader.exec_module(module)
    scheduler: Scheduler[Any] = module.create_scheduler("torchx")
    return scheduler


@pytest.fixture(scope="session")
def ssh_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options that lead to an sshd of the tests' own."""
    with ssh_server(tmp_path_factory.mktemp("sshd")) as options:
        yield options


class OverSsh:
    factory = staticmethod(create)
    cfg: ClassVar[dict[str, Any]] = {}
    begins_within = 0.7
    fields: ClassVar[dict[str, Meaning]] = {
        "image": Meaning.IGNORED,
        "min_replicas": Meaning.WARNED,
        "resource.cpu": Meaning.WARNED,
        "resource.memMB": Meaning.WARNED,
        "resource.gpu": Meaning.WARNED,
        "resource.devices": Meaning.WARNED,
        "resource.capabilities": Meaning.IGNORED,
        "resource.tags": Meaning.IGNORED,
        "mounts": Meaning.WARNED,
        "metadata": Meaning.IGNORED,
        "workspace": Meaning.REJECTED,
    }

    @pytest.fixture(autouse=True)
    def _server(self, ssh_options: dict[str, str]) -> None:
        me = f"{getpass.getuser()}@127.0.0.1"
        options = {"hosts": [me, me], "ssh_options": ssh_options}
        type(self).cfg = {**options, "grace_period": 4.0, "retry_backoff": 0.1}


@pytest.mark.xdist_group("ssh")
class TestSsh(OverSsh, SchedulerConformance):
    pass


@pytest.mark.xdist_group("ssh")
class TestAbilities(OverSsh, AbilityConformance):
    lacks = (Ability.EXECUTES, Ability.TIME_LIMIT)
