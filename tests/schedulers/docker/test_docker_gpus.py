"""GPUs by id: none is given to two applications. The engine has none here: nothing is started with one."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE

from torchx.errors import StateError
from torchx.jobs.paths import Home, state_home
from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.gpus import leased, taken
from torchx.schedulers.docker.labels import APP_ID, JOB, REPLICA, ROLE
from torchx.schedulers.docker.record import job_data, label_data
from torchx.schedulers.docker.request import to_request
from torchx.schedulers.docker.submit import _body
from torchx.schedulers.local.scheduler import create_scheduler
from torchx.schedulers.shared.gpus import Leases
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("gpus")]


@pytest.fixture(autouse=True)
def _machine_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with three GPUs, as its driver's program reports."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor n in 0 1 2; do echo "GPU $n: a GPU (UUID: GPU-$n)"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def bodies(replicas: int = 1, gpus: int = 1, **metadata: Any) -> tuple[str, list[dict[str, Any]]]:
    role = Role("w", IMAGE, entrypoint="true", num_replicas=replicas, resource=Resource(1, gpus, 64))
    role.metadata = dict(metadata)
    app = AppDef("job", [role])
    request = to_request(app, f"job-{uuid.uuid4().hex[:12]}", {})
    text = json.dumps(label_data(job_data(app, {"grace_period": 1.0}, "torchx")))
    return request.app_id, [_body(container, text) for container in request.containers]


def ids(of: list[dict[str, Any]]) -> list[list[str]]:
    return [request.get("DeviceIDs", []) for body in of for request in body["HostConfig"]["DeviceRequests"]]


@pytest.fixture
def made() -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for container in made:
        Engine().call("DELETE", f"/containers/{container}", {"force": 1})


def make(made: list[str], of: list[dict[str, Any]]) -> None:
    for body in of:
        name = f"{body['Labels'][APP_ID]}-{body['Labels'][ROLE]}-{body['Labels'][REPLICA]}"
        assert JOB in body["Labels"]
        made.append(Engine().call("POST", "/containers/create", {"name": name}, body)["Id"])


def test_each_has_its_own_as_long_as_its_containers_are_there(made: list[str]) -> None:
    _, first = bodies(replicas=2)
    with leased(Engine(), first, os.environ) as said:
        assert (ids(first), said) == ([["0"], ["1"]], [])
        make(made, first)
    assert {"0", "1"} <= taken(Engine())
    _, second = bodies()
    with leased(Engine(), second, os.environ):
        assert ids(second) == [["2"]]
    _, third = bodies(gpus=2)
    with pytest.raises(StateError, match="2 GPUs are requested; this machine has 3, 1 of them free"):
        leased(Engine(), third, os.environ).__enter__()
    Engine().call("DELETE", f"/containers/{made.pop(0)}")
    Engine().call("DELETE", f"/containers/{made.pop(0)}")
    with leased(Engine(), third, os.environ):
        assert ids(third) == [["0", "1"]]


def test_those_of_local_jobs_are_taken_too() -> None:
    local = Leases(Home(state_home()).devices)
    assert local.take(["0", "1", "2"], 1) == ["0"]
    _, body = bodies()
    with leased(Engine(), body, os.environ):
        assert ids(body) == [["1"]]
    local.close()


def test_a_local_job_gets_none_that_containers_have(made: list[str]) -> None:
    _, body = bodies(gpus=2)
    with leased(Engine(), body, os.environ):
        make(made, body)
    role = Role("w", "", entrypoint="sh", args=["-c", "echo has $CUDA_VISIBLE_DEVICES"])
    role.resource = Resource(1, 1, 64)
    local = create_scheduler("torchx")
    app_id = local.submit(AppDef("beside", [role]), {})
    assert local.wait(app_id, 60.0)
    assert list(local.log_iter(app_id, "w", 0)) == ["has 2\n"]
    role.resource = Resource(1, 2, 64)
    with pytest.raises(StateError, match="this machine has 3, 1 of them free"):
        local.submit(AppDef("beside", [role]), {"auto_set_cuda_visible_devices": True})
    local.delete(app_id)


def test_who_names_them_has_them(made: list[str]) -> None:
    named = {"device_requests": [{"DeviceIDs": ["0"], "Capabilities": [["gpu"]]}]}
    for _ in range(2):
        _, body = bodies(local_docker=named)
        with leased(Engine(), body, os.environ):
            assert ids(body) == [["0"]]
            make(made, body)


def test_what_the_caller_may_not_use_is_not_handed_on() -> None:
    _, body = bodies()
    with leased(Engine(), body, {**os.environ, "CUDA_VISIBLE_DEVICES": "2"}):
        assert ids(body) == [["2"]]


def test_of_an_engine_elsewhere_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(Address("tcp://far:2375", host="far", port=2375))
    _, body = bodies()
    with leased(engine, body, os.environ) as said:
        assert body[0]["HostConfig"]["DeviceRequests"][0]["Count"] == 1
        assert "free on a remote engine" in said[0]
