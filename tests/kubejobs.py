"""Applications of shell commands for the tests of the scheduler ``kubernetes``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support import wait_until

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler
from torchx.scheduling.base import DescribeAppResponse
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.status import AppState, is_terminal

IMAGE = "registry.example.com/shell"
OPTIONS: Mapping[str, Any] = {"grace_period": 1.0}


def role(command: str, name: str = "worker", **changes: Any) -> Role:
    settings: dict[str, Any] = {"image": IMAGE, "entrypoint": "sh", "args": ["-c", command]}
    settings["resource"] = Resource(cpu=1, gpu=0, memMB=256)
    return Role(name=name, **{**settings, **changes})


def app(*roles: Role | str, name: str = "train") -> AppDef:
    return AppDef(name, [role(each) if isinstance(each, str) else each for each in roles])


def submit(scheduler: KubernetesScheduler, *roles: Role | str, **cfg: Any) -> str:
    return scheduler.submit(app(*roles), {**OPTIONS, **cfg})


def until(
    scheduler: KubernetesScheduler, app_id: str, holds: Callable[[DescribeAppResponse], object], what: str
) -> DescribeAppResponse:
    def look() -> DescribeAppResponse | None:
        current = scheduler.glance(app_id)
        assert current is not None, f"{app_id} is not known"
        return current if holds(current) else None

    found = wait_until(look, what)
    assert found is not None
    return found


def until_state(scheduler: KubernetesScheduler, app_id: str, state: AppState) -> DescribeAppResponse:
    return until(scheduler, app_id, lambda response: response.state is state, f"{app_id} is {state}")


def until_all_run(scheduler: KubernetesScheduler, app_id: str) -> DescribeAppResponse:
    def holds(response: DescribeAppResponse) -> bool:
        replicas = [replica for role in response.roles_statuses for replica in role.replicas]
        return all(replica.state is AppState.RUNNING for replica in replicas)

    return until(scheduler, app_id, holds, f"all of {app_id} run")


def until_ended(scheduler: KubernetesScheduler, app_id: str) -> DescribeAppResponse:
    return until(scheduler, app_id, lambda response: is_terminal(response.state), f"{app_id} has ended")


def until_file(file: Path, then: str) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done; {then}"
