"""Helpers of the tests of applications in containers that wait for GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fakegpus
from containers import containers, scheduler, sh, until_over
from gpu_engine import GPUS
from program import pids_of
from support import wait_until

from torchx.jobs.paths import Home
from torchx.jobs.ticket import marked
from torchx.leases.holders import names_in_use
from torchx.specs.app import Role
from torchx.specs.resources import Resource
from torchx.specs.status import AppState


def with_gpus(role: Role, gpus: int) -> Role:
    role.resource = Resource(0, gpus, 64)
    return role


def job(gpus: int, script: str = "echo started; exec sleep 600", replicas: int = 1, **fields: Any) -> Role:
    return with_gpus(sh(script, replicas, **fields), gpus)


def home() -> Home:
    return Home(Path(os.environ["TORCHX_HOME"]))


def state(app_id: str) -> AppState:
    found = scheduler().glance(app_id)
    assert found is not None
    return found.state


def message(app_id: str) -> str:
    found = scheduler().glance(app_id)
    assert found is not None
    return found.msg


def until_running(app_id: str) -> None:
    wait_until(lambda: state(app_id) is AppState.RUNNING, f"{app_id} runs")


def keepers() -> list[int]:
    return pids_of("queue.keeper", home().path)


def starters(app_id: str) -> list[int]:
    return pids_of("docker.starter", home().job(app_id).folder)


def until_nothing_is_left(machine: fakegpus.FakeGpus, *app_ids: str) -> None:
    wait_until(lambda: not keepers(), "the keeper ends with its last application")
    assert marked(home()) == []
    wait_until(lambda: not {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use(), "all GPUs are free")
    for app_id in app_ids:
        until_over(app_id)
        assert not (home().logs / "torchx" / app_id).exists()


def gpus_of(app_id: str) -> list[str]:
    labels = [one["Config"]["Labels"] for one in containers(app_id)]
    return [gpu for each in labels for gpu in each[GPUS].split(",") if gpu]
