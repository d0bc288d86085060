"""A test of every scheduler: the lines of a command that follows an application."""

from __future__ import annotations

from typing import Any

from torchx.runner.api import Runner
from torchx.scheduling.base import Scheduler
from torchx.specs.handles import make_app_handle
from torchx.testing.harness import Harness
from torchx_cli.terminal.notices import Notices


class FollowingConformance(Harness):
    """The output of attached runs; see :class:`Harness` for the attributes to set."""

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
