"""Marks in the names of containers that two processes set at the same time: a cancellation is never lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from containers import Jobs, containers, ended, running, sh

from torchx.machine import threads
from torchx.schedulers.docker import supervisor
from torchx.schedulers.docker.cancel import cancel, end_all, mark, mark_ready
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.address import parse_address
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.labels import APP_ID, JOB, REPLICA, ROLE, USER
from torchx.schedulers.docker.lookup import containers_of, find_containers
from torchx.schedulers.docker.marks import (
    EXPIRED,
    FAILED,
    REFUSED,
    STALLED,
    STOPPED,
    unready,
)
from torchx.schedulers.docker.record import job_data, label_data
from torchx.schedulers.docker.replay import Progress, replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.schedulers.shared import owner
from torchx.specs.app import AppDef, Role
from torchx.specs.status import AppState

APP_ID_ = "train-b1"
AT = "2026-01-01T00:00:0{}Z"


class Machine:
    """An engine in memory: one process at a time, names are unique, and a path has an id or a name."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []

    def add(self, name: str, config: dict[str, Any], status: str, code: int = 0) -> str:
        state: dict[str, Any] = {"Status": "created", "ExitCode": 0}
        if status != "created":
            state = {"Status": status, "StartedAt": AT.format(1), "ExitCode": code}
        if status == "exited":
            state["FinishedAt"] = AT.format(2)
        number = f"{len(self.known):064x}"
        made = {"Id": number, "Name": f"/{name}", "Created": AT.format(0), "Config": config, "State": state}
        self.known.append({**made, "Image": "img", "HostConfig": {}})
        return number

    def call(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        _, _, key, *verb = path.split("/")
        if key == "json":
            return [{"Id": one["Id"], "Labels": one["Config"]["Labels"]} for one in self.known]
        if key == "create":
            return {"Id": self.add(query["name"], body, "created")}
        found = [one for one in self.known if key in (one["Id"], one["Name"][1:])]
        if not found:
            raise EngineError(404, f"No such container: {key}")
        if method == "DELETE":
            self.known.remove(found[0])
            return None
        return getattr(self, "_" + verb[0])(found[0], query)

    def _json(self, one: dict[str, Any], _: object) -> Any:
        return json.loads(json.dumps(one))

    def _rename(self, one: dict[str, Any], query: dict[str, str]) -> None:
        if f"/{query['name']}" in [other["Name"] for other in self.known]:
            raise EngineError(409, "the name is in use")
        one["Name"] = f"/{query['name']}"

    def _start(self, one: dict[str, Any], _: object) -> None:
        one["State"] = {"Status": "running", "StartedAt": AT.format(3), "ExitCode": 0}

    def _kill(self, one: dict[str, Any], _: object) -> None:
        if one["State"]["Status"] != "running":
            raise EngineError(409, "it does not run")
        one["State"] |= {"Status": "exited", "ExitCode": 143, "FinishedAt": AT.format(4)}


class Process(Engine):
    """A process at that engine; another process acts before its request ``at``."""

    def __init__(self, machine: Machine, at: int = -1, other: Callable[[], object] = lambda: None) -> None:
        super().__init__(parse_address("unix:///no-engine"))
        self.machine, self.at, self.other, self.count = machine, at, other, 0

    def call(self, method: str, path: str, query: Any = None, body: Any = None, patience: Any = None) -> Any:
        if self.count == self.at:
            self.other()
        self.count += 1
        return self.machine.call(method, path, query, body)


def a_job(status: str, code: int = 0) -> Machine:
    """An engine with a job of two replicas that are restarted together, as the second one has failed."""
    role = Role("w", "img", entrypoint="sh", max_retries=9, num_replicas=2)
    data = json.dumps(label_data(job_data(AppDef("train", [role]), {"grace_period": 0.0}, "torchx")))
    machine = Machine()
    for number, (state, exit_code) in enumerate([(status, code), ("exited", 1)]):
        labels = {APP_ID: APP_ID_, ROLE: "w", REPLICA: str(number), USER: owner.user_name(), JOB: data}
        host = f"{APP_ID_}-w-{number}"
        machine.add(host, {"Labels": labels, "Hostname": host, "Env": []}, state, exit_code)
    return machine


def present(machine: Machine) -> list[Container]:
    return find_containers(Process(machine), APP_ID_)[APP_ID_]


def progress_of(machine: Machine) -> Progress:
    return replay(job_of(present(machine)), present(machine))


def ends(mark: str) -> Callable[[Engine, list[Container]], object]:
    return lambda engine, read: end_all(engine, read[:1], mark, 0.0)


def starts_again(engine: Engine, read: list[Container]) -> None:
    supervisor.Supervisor(engine, APP_ID_, supervised_in(APP_ID_))._start(replay(job_of(read), read), [0, 1])


STEPS = {
    "stopped": ("running", 0, ends(STOPPED)),
    "expired": ("running", 0, ends(EXPIRED)),
    "stalled": ("running", 0, ends(STALLED)),
    "not ready": ("running", 0, ends(unready("HTTP 503"))),
    "aborted": ("running", 0, lambda engine, read: mark(engine, read[:1], STALLED)),
    "ready": ("running", 0, lambda engine, read: mark_ready(engine, read[0])),
    "ended": ("exited", 1, ends(STOPPED)),
    "not retried": ("exited", 1, ends(f"{REFUSED}exit-code")),
    "given up": ("exited", 1, ends(FAILED)),
    "restart": ("exited", 1, starts_again),
}
"""Steps of a supervisor: the first container, its exit code, and the step with containers read before."""


def check(machine: Machine) -> None:
    """The application has ended, with a cancellation unless it had failed before, and nothing runs."""
    progress, names = progress_of(machine), [c.full_name for c in present(machine)]
    assert progress.end is not None, names
    assert progress.cancelled or any(c.mark.startswith((FAILED, REFUSED)) for c in present(machine)), names
    assert not any(c.live for c in present(machine)), names


def interleavings(kind: str, first: str) -> int:
    """Runs a step and a cancellation, one of them before each request of the other; returns the requests."""
    status, code, step = STEPS[kind]
    at, more = 0, True
    while more:
        machine = a_job(status, code)
        read_before = present(machine)
        cancels = [lambda m=machine: cancel(Process(m), APP_ID_)]
        acts = [lambda m=machine, r=read_before: step(Process(m), r)]  # type: ignore[misc]
        if first == "cancellation":
            process = Process(machine, at, acts[0])
            cancel(process, APP_ID_)
        else:
            process = Process(machine, at, cancels[0])
            step(process, read_before)
        more = process.count > at
        if not more and first != "cancellation":
            break
        check(machine)
        at += 1
    return at


@pytest.mark.parametrize("first", ["cancellation", "step"])
@pytest.mark.parametrize("kind", STEPS)
def test_a_cancellation_wins_at_any_moment(kind: str, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.time, "sleep", lambda _: None)
    monkeypatch.setattr(threads, "begin", lambda *_: None)  # one request at a time
    assert interleavings(kind, first) >= 1


@pytest.mark.parametrize("reason", [unready("HTTP 503"), STALLED, STOPPED])
def test_a_replica_between_end_and_retry_is_cancelled(reason: str) -> None:
    machine = a_job("exited")
    machine.known[0]["Name"] += f".{reason}"
    machine.known[1]["Name"] += f".{STALLED}"
    machine.known[1]["State"]["ExitCode"] = 0
    assert progress_of(machine).starts
    cancel(Process(machine), APP_ID_)
    check(machine)


def test_a_guest_named_like_a_mark_hides_no_cancellation() -> None:
    machine = a_job("running")
    names = [f"{APP_ID_}-w-{n}.cancelled" for n in range(2)]
    for name in names:
        machine.add(name, {"Labels": {}}, "running")
    cancel(Process(machine), APP_ID_)
    check(machine)
    assert [one["State"]["Status"] for one in machine.known if one["Name"][1:] in names] == ["running"] * 2


class Renamed(Engine):
    """An engine on which a container is renamed before the first request to rename it."""

    def __init__(self, app_id: str) -> None:
        super().__init__()
        self.app_id, self.done = app_id, False

    def call(self, method: str, path: str, query: Any = None, body: Any = None, patience: Any = None) -> Any:
        if path.endswith("/rename") and not self.done:
            self.done = True
            cancel(Engine(), self.app_id)
        return super().call(method, path, query, body, patience)


@pytest.mark.docker
def test_an_engine_rejects_a_change_of_an_old_name(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exec sleep 600", max_retries=9))
    running(app_id)
    engine = Renamed(app_id)
    end_all(engine, containers_of(Engine(), app_id), unready("HTTP 503"), 5.0)
    assert engine.done
    assert ended(app_id).state is AppState.CANCELLED
    assert containers(app_id)[0]["Name"].endswith("-w-0.cancelled")
    assert len(containers(app_id)) == 1
