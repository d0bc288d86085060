"""Tests of schedulers that other packages derive from an engine, or wrote for an earlier interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from torchx.runner import Runner
from torchx.schedulers.api import (
    DescribeAppResponse,
    Glances,
    ListAppResponse,
    LogChunks,
    Scheduler,
    Waits,
)
from torchx.schedulers.docker_scheduler import DockerScheduler
from torchx.schedulers.local_scheduler import LocalScheduler
from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.specs import AppDef, AppDryRunInfo, AppState, CfgVal, Resource, Role

ENDED = DescribeAppResponse(app_id="a", state=AppState.SUCCEEDED)


class Tunnel(SlurmScheduler):
    """A scheduler that reaches Slurm by itself, and overrides the documented methods."""

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return ENDED

    def list(self) -> list[ListAppResponse]:  # type: ignore[override]
        return [ListAppResponse("a", AppState.SUCCEEDED)]

    def log_iter(self, app_id: str, role_name: str, k: int = 0, *args: Any, **more: Any) -> Iterable[str]:
        return ["a line\n"]

    def _cancel_existing(self, app_id: str) -> None:
        raise NotImplementedError(app_id)


class Faster(Tunnel):
    def glance(self, app_id: str) -> DescribeAppResponse | None:
        return DescribeAppResponse(app_id="a", state=AppState.FAILED)


@pytest.mark.parametrize("ability", [Glances, LogChunks, Waits])
def test_an_overridden_method_counts_for_derived_ones(ability: type) -> None:
    """Without this, `status` would query this machine's Slurm for a job of another cluster."""
    assert isinstance(SlurmScheduler("s"), ability)
    assert not isinstance(Tunnel("s"), ability)


def test_a_runner_calls_the_overridden_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    with Runner("s", {"tunnel": lambda session, **_: Tunnel(session)}) as runner:
        status = runner.wait("tunnel://s/a", timeout=5)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [app.app_handle for app in runner.list("tunnel")] == ["tunnel://s/a"]
        assert [*runner.log_lines("tunnel://s/a", "r")] == ["a line\n"]
        runner.cancel("tunnel://s/a")  # it has ended
        running = DescribeAppResponse(app_id="a", state=AppState.RUNNING)
        monkeypatch.setattr(Tunnel, "describe", lambda self, app_id: running)
        with pytest.raises(NotImplementedError):
            runner.cancel("tunnel://s/a")


def test_methods_that_the_class_defines_itself_count() -> None:
    assert isinstance(Faster("s"), Glances)
    assert not isinstance(Faster("s"), Waits)


class Former(Scheduler["None"]):
    """A scheduler with the parameters of 0.7.0."""

    def __init__(self, session_name: str) -> None:
        super().__init__("former", session_name)
        self.checked: list[str] = []

    def _validate(self, app: AppDef, scheduler: str) -> None:  # type: ignore[override]
        super()._validate(app, scheduler)
        self.checked.append(app.name)

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[None]:
        return AppDryRunInfo(None, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[None]) -> str:
        return "a"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return ENDED

    def list(self) -> list[ListAppResponse]:  # type: ignore[override]
        return [ListAppResponse("a", AppState.SUCCEEDED)]

    def _cancel_existing(self, app_id: str) -> None: ...


def test_methods_with_fewer_parameters_are_called_with_fewer_arguments() -> None:
    scheduler = Former("s")
    app = AppDef("a", [Role("r", "image", entrypoint="x", resource=Resource(1, 0, 1))])
    assert scheduler.submit(app, {}) == "a"
    assert scheduler.checked == ["a"]
    with Runner("s", {"former": lambda session, **_: scheduler}) as runner:
        assert [app.app_id for app in runner.list("former", {})] == ["a"]


@pytest.mark.parametrize("engine", [LocalScheduler, DockerScheduler, SlurmScheduler])
def test_checks_can_be_called_without_options(engine: type[Any]) -> None:
    engine("s")._validate(AppDef("a", [Role("r", "image", resource=Resource(1, 0, 1))]), "name")


def test_the_methods_of_the_engines_are_unchanged() -> None:
    assert isinstance(LocalScheduler("s"), Glances)
    assert isinstance(LocalScheduler("s"), Waits)
    assert isinstance(DockerScheduler("s"), LogChunks)


class FormerRunner(Runner):
    """Derives as NeMo-Run does: private attributes of the runner and of the request."""

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        assert dryrun_info._app is not None
        app_id = self._scheduler(str(dryrun_info._scheduler)).schedule(dryrun_info)
        handle = f"{dryrun_info._scheduler}://{self._name}/{app_id}"
        self._apps[handle] = dryrun_info._app
        return handle


def test_a_derived_runner() -> None:
    app = AppDef("a", [Role("r", "image", entrypoint="x", resource=Resource(1, 0, 1))])
    with FormerRunner("s", {"former": lambda session, **_: Former(session)}) as runner:
        handle = runner.run(app, "former")
        assert handle == "former://s/a"
        assert runner._apps[handle].name == "a"
