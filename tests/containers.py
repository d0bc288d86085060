"""Helpers of the tests of containers: applications of shell lines, and what an engine says of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine import IMAGE
from support import wait_until

from torchx.machine import locks
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.labels import APP_ID
from torchx.schedulers.docker.scheduler import DockerScheduler, create_scheduler
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.scheduling.base import DescribeAppResponse
from torchx.scheduling.logs import LogQuery, Stream
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState, ReplicaStatus


def sh(
    script: str, replicas: int = 1, *, name: str = "w", policy: str = "APPLICATION", **fields: Any
) -> Role:
    """A role whose replicas run a shell script."""
    settings: dict[str, Any] = {"image": IMAGE, "entrypoint": "sh", "args": ["-c", script], **fields}
    return Role(name, num_replicas=replicas, retry_policy=RetryPolicy(policy), **settings)


def scheduler() -> DockerScheduler:
    """The scheduler as another process would see it: nothing is kept from one to the next."""
    return create_scheduler("torchx")


class Jobs:
    """Submits applications, and removes them at the end of the test."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def submit(self, *roles: Role, name: str = "job", **cfg: CfgVal) -> str:
        """Submits an application and returns its id."""
        options: dict[str, CfgVal] = {"grace_period": 5.0, "retry_backoff": 0.01, **cfg}
        app_id = scheduler().submit(AppDef(name, list(roles), {"team": "a"}), options)
        self.ids.append(app_id)
        return app_id

    def run(self, *roles: Role, **cfg: CfgVal) -> DescribeAppResponse:
        """Runs an application to its end."""
        return ended(self.submit(*roles, **cfg))


@contextmanager
def jobs_of_a_test() -> Iterator[Jobs]:
    jobs = Jobs()
    yield jobs
    for app_id in jobs.ids:
        scheduler().kill(app_id)
        scheduler().delete(app_id)


def describe(app_id: str) -> DescribeAppResponse:
    """What is known of an application that is there."""
    found = scheduler().describe(app_id)
    assert found is not None
    return found


def ended(app_id: str, timeout: float = 60.0) -> DescribeAppResponse:
    """Waits for the end of an application and returns what is known of it."""
    assert scheduler().wait(app_id, timeout), f"{app_id} still runs"
    return describe(app_id)


def replicas(described: DescribeAppResponse) -> list[ReplicaStatus]:
    """All replicas of all roles."""
    return [replica for role in described.roles_statuses for replica in role.replicas]


def running(app_id: str, count: int = 1) -> DescribeAppResponse:
    """Waits until so many replicas run."""

    def look() -> DescribeAppResponse | None:
        described = describe(app_id)
        states = [replica.state for replica in replicas(described)]
        return described if states.count(AppState.RUNNING) >= count else None

    return wait_until(look, f"{count} replicas of {app_id} run")


def text(app_id: str, stream: Stream = Stream.COMBINED, **query: Any) -> str:
    """The log of an application."""
    chunks = scheduler().log_chunks(app_id, LogQuery(stream=stream, **query))
    return b"".join(chunk.data for chunk in chunks).decode()


def until_logged(app_id: str, what: str) -> None:
    """Waits until something stands in the log."""
    wait_until(lambda: what in text(app_id), f"{what!r} in the log of {app_id}")


def containers(app_id: str) -> list[dict[str, Any]]:
    """What the engine says of the containers of an application."""
    engine = Engine()
    query = {"all": 1, "filters": {"label": [f"{APP_ID}={app_id}"]}}
    inspected = []
    for entry in engine.call("GET", "/containers/json", query):
        try:
            inspected.append(engine.call("GET", f"/containers/{entry['Id']}/json"))
        except EngineError as error:
            if error.status != 404:  # removed since it was listed
                raise
    return inspected


def supervisor_of(app_id: str) -> int | None:
    """The pid of the supervisor of an application on this machine."""
    folder = str(supervised_in(app_id).folder)
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if folder.encode() in words:
            return int(entry.name)
    return None


def until_over(app_id: str) -> None:
    """Waits until the supervisor of an application has ended."""
    wait_until(lambda: not locks.is_held(supervised_in(app_id).lock), "its supervisor has ended")


def fresh(name: str) -> str:
    """A name that nothing of an earlier run has, which may have been killed."""
    return f"{name}{uuid.uuid4().hex[:8]}"


def of_name(name: str) -> list[str]:
    """The names of all containers of jobs of a name, whatever their state."""
    query = {"all": 1, "filters": {"name": [f"^/{name}-"]}}
    return [entry["Names"][0] for entry in Engine().call("GET", "/containers/json", query)]
