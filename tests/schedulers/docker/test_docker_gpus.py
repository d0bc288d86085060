"""GPUs by id: none is given to two applications. The engine has none here: nothing is started with one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakegpus
import pytest
from engine import IMAGE

from torchx.errors import StateError, UsageError
from torchx.schedulers.docker.engine.address import Address
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.gpus import lease, taken
from torchx.schedulers.docker.labels import APP_ID, JOB, REPLICA, ROLE
from torchx.schedulers.docker.record import job_data, label_data
from torchx.schedulers.docker.request import to_request
from torchx.schedulers.docker.submit import _body
from torchx.schedulers.local.scheduler import create_scheduler
from torchx.schedulers.shared.reservation import Reservation
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
from torchx.specs.run_options import CfgVal

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("gpus")]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    """A machine with three GPUs, as its driver's program reports."""
    return fakegpus.install(monkeypatch, tmp_path, 3)


Job = tuple[AppDef, list[dict[str, Any]]]


def job(replicas: int = 1, gpus: int = 1, **metadata: Any) -> Job:
    role = Role("w", IMAGE, entrypoint="true", num_replicas=replicas, resource=Resource(1, gpus, 64))
    role.metadata = dict(metadata)
    app = AppDef("job", [role])
    request = to_request(app, f"job-{uuid.uuid4().hex[:12]}", {})
    text = json.dumps(label_data(job_data(app, {"grace_period": 1.0}, "torchx")))
    return app, [_body(container, text) for container in request.containers]


def leased(of: Job, engine: Engine | None = None, **cfg: CfgVal) -> tuple[Reservation, list[str]]:
    app, bodies = of
    found, notes = lease(engine or Engine(), "job-1", bodies, app, {"no_wait": True, **cfg}, 1.0)
    assert isinstance(found, Reservation), "it does not wait"
    return found, notes


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


def test_each_has_its_own_while_its_containers_exist(made: list[str], machine: fakegpus.FakeGpus) -> None:
    zero, one, two = machine.ids
    first = job(replicas=2)
    reservation, notes = leased(first)
    with reservation:
        assert (ids(first[1]), notes) == ([[zero], [one]], [])
        make(made, first[1])
    assert {zero, one} <= taken(Engine()), "its supervisor was killed: no process has the leases"
    second = job()
    with leased(second)[0]:
        assert ids(second[1]) == [[two]]
    third = job(gpus=2)
    with pytest.raises(StateError, match="job requests 2 GPUs; this machine has 3, 1 of them free") as error:
        leased(third)
    assert error.value.hint == "GPU 0, 1: a container, or a job without a lease"
    Engine().call("DELETE", f"/containers/{made.pop(0)}")
    Engine().call("DELETE", f"/containers/{made.pop(0)}")
    with leased(third)[0]:
        assert ids(third[1]) == [[zero, one]]


def test_a_local_job_gets_none_that_containers_have(made: list[str]) -> None:
    containers = job(gpus=2)
    with leased(containers)[0]:
        make(made, containers[1])
    role = Role("w", "", entrypoint="sh", args=["-c", "echo has $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"])
    role.resource = Resource(1, 1, 64)
    local = create_scheduler("torchx")
    app_id = local.submit(AppDef("beside", [role]), {"no_wait": True})
    assert local.wait(app_id, 60.0)
    assert list(local.log_iter(app_id, "w", 0)) == ["has 2 PCI_BUS_ID\n"]
    role.resource = Resource(1, 2, 64)
    with pytest.raises(StateError, match="this machine has 3, 1 of them free"):
        local.submit(AppDef("beside", [role]), {"no_wait": True})
    local.delete(app_id)


def test_who_names_them_has_them(made: list[str], machine: fakegpus.FakeGpus) -> None:
    named = {"device_requests": [{"DeviceIDs": [machine.ids[0]], "Capabilities": [["gpu"]]}]}
    for _ in range(2):
        containers = job(local_docker=named)
        with leased(containers)[0] as reservation:
            assert reservation.leases.names == []
            assert ids(containers[1]) == [[machine.ids[0]]]
            make(made, containers[1])


def test_what_caller_may_not_use_is_not_handed_on(
    machine: fakegpus.FakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    containers = job()
    with leased(containers)[0]:
        assert ids(containers[1]) == [[machine.ids[2]]], "by id: in a container they are numbered from 0"


def test_of_an_engine_elsewhere_they_are_counted() -> None:
    engine = Engine(Address("tcp://far:2375", host="far", port=2375))
    containers = job()
    reservation, notes = leased(containers, engine)
    assert reservation.leases.names == []
    assert containers[1][0]["HostConfig"]["DeviceRequests"][0]["Count"] == 1
    assert "a remote engine does not report" in notes[0]
    with pytest.raises(UsageError, match="`reserve` needs an engine on this machine"):
        leased(containers, engine, reserve=True)


SUBMIT = """
import os, sys, time
from torchx.leases.holders import holders, names_in_use
from torchx.leases.machine import cpu_names
from torchx.leases.waiting import Watch
from torchx.schedulers.docker.scheduler import create_scheduler
from torchx.specs.app import AppDef, Role
from torchx.specs.resources import Resource
import signal

docker = create_scheduler("torchx")
role = Role("w", sys.argv[1], entrypoint="sleep", args=["600"], resource=Resource(1, 0, 64))
app_id = second = docker.submit(AppDef("job", [role]), {"reserve": True, "grace_period": 0.0})
try:
    (cpu,) = (name for name in names_in_use() if name.startswith("cpu-"))
    first = holders([cpu])[cpu]
    assert (first.app, first.uid) == (app_id, os.getuid()), first
    os.kill(first.pid, signal.SIGKILL)
    while (second := holders([cpu])[cpu]).pid == first.pid:  # its guard holds the lease, and replaces it
        pass
    assert second.app == app_id, second
    # the next job does not fit: it would need all processors
    role.resource = Resource(len(cpu_names()), 0, 64)
    try:
        create_scheduler("torchx").submit(AppDef("job", [role]), {"reserve": True, "no_wait": True})
    except Exception as error:
        print(error.message)
    second = docker.submit(AppDef("job", [role]), {"reserve": True, "grace_period": 0.0})
    print(docker.glance(second).msg)
    docker.cancel(app_id)
    while docker.glance(second).state.name != "RUNNING":
        time.sleep(0.05)
    assert {name for name in names_in_use() if name.startswith("cpu-")} == set(cpu_names())
finally:
    for each in (app_id, second):
        docker.cancel(each)
    while held := names_in_use():
        with Watch(sorted(held)[:1]) as watch:
            watch.wait(120)
    for each in (app_id, second):
        docker.delete(each)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network namespace with leases of its own")
def test_supervisor_of_containers_holds_leases_and_next_job_waits() -> None:
    command = ["unshare", "-n", sys.executable, "-c", SUBMIT, IMAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    expected = r"job requests \d+ CPUs?; this machine has \d+, \d+ of them free\n"
    expected += r"waiting for \d+ CPUs?: \d+ of \d+ (is|are) free; first in the queue\n"
    assert re.fullmatch(expected, done.stdout), done.stdout
