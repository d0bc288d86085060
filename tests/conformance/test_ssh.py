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

from torchx.errors import UsageError
from torchx.scheduling.base import AnyScheduler, Scheduler
from torchx.specs.status import AppState, EndCause
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
    lacks = (Ability.EXECUTES,)

    def test_options_of_this_machine_are_left_out(self, scheduler: AnyScheduler) -> None:
        names = {name for name, _ in scheduler.run_opts()}
        assert {"hosts", "stall", "retry_on", "time_limit", "policies", "grace_period"} <= names
        assert not {"reserve", "preflight", "setup_once", "prepend_cwd", "priority"} & names

    def test_a_stall_ends_the_application(self, scheduler: AnyScheduler) -> None:
        app_id = self.submit(scheduler, "echo up; exec sleep 600", stall="2s", on_stall="cancel")
        ended = self.until_ended(scheduler, app_id)
        assert (ended.state, ended.cause) == (AppState.CANCELLED, EndCause.STALLED)

    def test_other_failures_are_not_retried(self, scheduler: AnyScheduler) -> None:
        role = self.role('exit "$TORCHX_ATTEMPT"', max_retries=5)
        ended = self.until_ended(scheduler, self.submit(scheduler, self.app(role), retry_on=["1", "2"]))
        attempts = ended.roles_statuses[0].replicas[0].attempts
        assert [attempt.exit_code for attempt in attempts] == [1, 2, 3]

    def test_a_notice_reaches_the_program_that_handles_it(self, scheduler: AnyScheduler) -> None:
        """The shell around it does not, and would be ended by the signal."""
        program = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.1; done"
        role = self.role(f'sh -c "{program}"; echo "ended with $?"')
        app_id = self.submit(scheduler, self.app(role), time_limit="60s", notice="57s")
        assert self.until_ended(scheduler, app_id).state is AppState.SUCCEEDED
        text = "".join(scheduler.log_iter(app_id, role.name, 0))
        assert "saved" in text
        assert "ended with 0" in text

    def test_the_signal_that_ends_a_replica_is_no_notice(self, scheduler: AnyScheduler) -> None:
        cfg = {**self.cfg, "time_limit": "60s", "notice": "5s:TERM"}
        with pytest.raises(UsageError, match="notice of ssh cannot be TERM"):
            scheduler.submit_dryrun(self.app(self.role("true")), cfg)
