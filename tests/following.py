"""Tests of every scheduler: the lines of a command that follows an application, and preflight checks."""

from __future__ import annotations

from typing import Any

from torchx.runner.api import Runner
from torchx.scheduling.base import Scheduler
from torchx.scheduling.preflight_program import FAILED, MARK
from torchx.specs.handles import make_app_handle
from torchx.testing.harness import NAMED, Harness
from torchx_cli.terminal.notices import Notices


class FollowingConformance(Harness):
    """The output of attached runs, and checks; see :class:`Harness` for the attributes to set."""

    def test_an_attached_run_names_a_retry(self, scheduler: Scheduler[Any]) -> None:
        lines: list[str] = []
        role = self.role(f"sleep {self.begins_within}; exit 3", name="bad", max_retries=1)
        app_id = self.submit(scheduler, self.app(role))
        runner = Runner("conformance", {scheduler.backend: lambda session_name, **_: scheduler})
        handle = make_app_handle(scheduler.backend, "conformance", app_id)
        with Notices(runner, handle, lambda *new: lines.extend(new), new=True):
            runner.wait(handle)
        (line,) = [line for line in lines if "attempt 2" in line]
        assert line.startswith("bad/0 exit 3"), line
        assert "; attempt 2 of 2" in line

    def test_a_failed_check_ends_the_attempt_before_the_program(self, scheduler: Scheduler[Any]) -> None:
        named = f'cmd:sh -c \'test "{NAMED}" = "worker/0 worker 0 1"\''
        for check, code in ((named, 7), ("cmd:false", FAILED)):
            app = self.app(self.role("echo program; exit 7", max_retries=0))
            status = self.run(scheduler, app, preflight=[check, "disk:1kB"])
            first = self.failure_of(status)
            assert (first.replica, first.exit_code) == (0, code)
            lines = self.log(scheduler, status.app_id)
            if code == FAILED:
                found = [line for line in lines if line.startswith(MARK)]
                assert found, f"no finding in {lines}"
                assert found[0].rstrip().endswith(": cmd: `false` ended with exit code 1")
            assert ("program\n" in lines) is (code == 7), f"the program starts after its checks: {lines}"
            if status.roles:  # the program is on record, without the checks
                assert status.roles[0].entrypoint == "sh"
