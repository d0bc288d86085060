"""Containers that only have the labels of a replica, and replicas whose containers are removed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from containers import (
    Jobs,
    containers,
    describe,
    ended,
    fresh,
    replicas,
    running,
    scheduler,
    sh,
    supervisor_of,
    text,
)
from engine import IMAGE
from program import torchx
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.gpus import taken
from torchx.schedulers.docker.journal import recorded_of
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


class Guests:
    """Containers made by hand; they are removed at the end of the test."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self.images: list[str] = []

    def start(self, image: str, script: str, name: str = "", **fields: Any) -> str:
        """Starts a container."""
        body = {"Image": image, "Entrypoint": [], "Cmd": ["sh", "-c", script], **fields}
        made = Engine().call("POST", "/containers/create", {"name": name or fresh("guest")}, body)
        self._ids.append(made["Id"])
        Engine().call("POST", f"/containers/{made['Id']}/start")
        return str(made["Id"])

    def commit(self, container: str) -> str:
        """Returns an image made from a container."""
        image = Engine().call("POST", "/commit", {"container": container}, {})["Id"]
        self.images.append(image)
        return str(image)

    def remove(self) -> None:
        for path in [f"/containers/{one}" for one in self._ids] + [f"/images/{one}" for one in self.images]:
            with suppress(StateError):
                Engine().call("DELETE", path, {"force": 1})


@pytest.fixture
def guests() -> Iterator[Guests]:
    guests = Guests()
    yield guests
    guests.remove()


def inspect(container: str) -> dict[str, Any]:
    inspected: dict[str, Any] = Engine().call("GET", f"/containers/{container}/json")
    return inspected


def of_replica(app_id: str, number: int) -> dict[str, Any]:
    found = [c for c in containers(app_id) if c["Config"]["Hostname"] == f"{app_id}-w-{number}"]
    return found[0]


def has_ended(container: str) -> bool:
    return bool(inspect(container)["State"]["Status"] == "exited")


def test_an_image_of_a_replica_changes_nothing(jobs: Jobs, guests: Guests) -> None:
    app_id = jobs.submit(sh("echo up; exec sleep 600", 2))
    running(app_id, 2)
    image = guests.commit(of_replica(app_id, 0)["Id"])
    failed = guests.start(image, "echo guest; exit 9")
    wait_until(lambda: has_ended(failed), "the guest has failed")
    lasting = guests.start(image, "exec sleep 600")
    described = describe(app_id)
    assert [r.state for r in replicas(described)] == [AppState.RUNNING] * 2
    assert "guest" not in text(app_id)
    assert scheduler().wait(app_id, 1.0) is False
    events = torchx("events", f"local_docker://torchx/{app_id}", "-o", "json").stdout
    assert "exit" not in events
    names = [inspect(one)["Name"] for one in (failed, lasting)]
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    scheduler().delete(app_id)
    assert [inspect(one)["Name"] for one in (failed, lasting)] == names
    assert inspect(lasting)["State"]["Running"] is True
    assert scheduler().describe(app_id) is None
    assert not scheduler().exists(app_id)
    assert app_id not in [row.app_id for row in scheduler().list()]
    assert [pruned.app_id for pruned in scheduler().prune([app_id]) if pruned.app_id] == []
    scheduler().cancel(app_id)
    scheduler().delete(app_id)
    assert inspect(lasting)["State"]["Running"] is True


@pytest.mark.parametrize("name", ["{host}.cancelled", "{host}.failed", "{host}.2", "{host}-debug", "debug"])
def test_copied_labels_change_nothing_under_any_name(name: str, jobs: Jobs, guests: Guests) -> None:
    app_id = jobs.submit(sh("exec sleep 600", 2))
    running(app_id, 2)
    own = of_replica(app_id, 0)
    name = name.format(host=own["Config"]["Hostname"])
    labels = {**own["Config"]["Labels"], "torchx.pytorch.org/attempt": "2"}
    for changed in (own["Config"]["Labels"], labels):
        guest = guests.start(IMAGE, "exit 9", name, Labels=changed)
        wait_until(lambda guest=guest: has_ended(guest), "the guest has failed")  # type: ignore[misc]
        assert [r.state for r in replicas(describe(app_id))] == [AppState.RUNNING] * 2
        Engine().call("DELETE", f"/containers/{guest}")


def test_a_copy_with_the_host_name_changes_nothing(jobs: Jobs, guests: Guests) -> None:
    app_id = jobs.submit(sh("exec sleep 600"))
    running(app_id)
    (own,) = containers(app_id)
    config = {"Labels": own["Config"]["Labels"], "Hostname": own["Config"]["Hostname"]}
    guest = guests.start(IMAGE, "exit 9", **config)
    wait_until(lambda: has_ended(guest), "the guest has failed")
    assert describe(app_id).state is AppState.RUNNING
    scheduler().cancel(app_id)
    ended(app_id)
    assert inspect(guest)["Name"].startswith("/guest")


def test_a_copy_of_a_replica_uses_no_gpus(
    jobs: Jobs, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = jobs.submit(sh("exec sleep 600"))
    running(app_id)
    (own,) = containers(app_id)
    guest = guests.start(IMAGE, "exec sleep 600", Labels=own["Config"]["Labels"])

    class WithGpus(Engine):
        def call(self, method: str, path: str, *args: Any, **named: Any) -> Any:
            found = super().call(method, path, *args, **named)
            if path == f"/containers/{guest}/json":
                found["HostConfig"]["DeviceRequests"] = [{"DeviceIDs": ["GPU-of-guest"]}]
            return found

    assert "GPU-of-guest" not in taken(WithGpus())


def test_a_replica_that_is_renamed_stays_one(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exec sleep 600"))
    running(app_id)
    (own,) = containers(app_id)
    Engine().call("POST", f"/containers/{own['Id']}/rename", {"name": fresh("renamed")})
    assert describe(app_id).state is AppState.RUNNING


def remove_ended(app_id: str, number: int) -> None:
    """Removes the container of a replica as soon as its success is recorded."""

    def is_recorded() -> bool:
        recorded = recorded_of(app_id).containers.values()
        return of_replica(app_id, number)["Id"] in [container.id for container in recorded]

    wait_until(is_recorded, "the supervisor has recorded the end")
    Engine().call("DELETE", f"/containers/{of_replica(app_id, number)['Id']}")


def test_a_success_stays_when_its_container_is_removed(jobs: Jobs) -> None:
    script = "test $TORCHX_REPLICA = w/0 || until [ -e /tmp/over ]; do sleep 0.1; done"
    app_id = jobs.submit(sh(script, 2))
    remove_ended(app_id, 0)
    states = [r.state for r in replicas(describe(app_id))]
    assert states == [AppState.SUCCEEDED, AppState.RUNNING]
    pid = supervisor_of(app_id)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: supervisor_of(app_id) != pid, "it has been killed")
    scheduler().reconcile(app_id)
    wait_until(lambda: supervisor_of(app_id), "another supervisor runs")
    assert describe(app_id).state is AppState.RUNNING
    torchx("exec", f"local_docker://torchx/{app_id}/w/1", "touch", "/tmp/over")
    result = ended(app_id)
    assert result.state is AppState.SUCCEEDED
    first = replicas(result)[0]
    assert (first.state, first.exit_code, first.attempts[0].ended_at is not None) == (
        AppState.SUCCEEDED,
        0,
        True,
    )
    with pytest.raises(StateError, match=r"the log of w/0 of .* was removed with its container"):
        text(app_id, replicas={"w": frozenset({0})})
    assert text(app_id) == ""
    native = scheduler().describe_native(app_id)
    assert len(native) == 1
    scheduler().delete(app_id)
    assert not supervised_in(app_id).folder.exists()


def test_a_failure_stays_when_its_container_is_removed(jobs: Jobs) -> None:
    script = "test $TORCHX_REPLICA = w/0 && exit 7; exec sleep 600"
    app_id = jobs.submit(sh(script, 2), fail_fast=False)
    remove_ended(app_id, 0)
    scheduler().cancel(app_id)
    result = ended(app_id)
    first = replicas(result)[0]
    assert (result.state, first.state, first.exit_code) == (AppState.CANCELLED, AppState.FAILED, 7)


def test_a_failing_program_in_a_replica_changes_nothing(jobs: Jobs) -> None:
    """Its output is none of the log, and its failure none of the job."""
    app_id = jobs.submit(sh("echo hi; until [ -e /end ]; do sleep 0.1; done", max_retries=3))
    running(app_id)
    handle = f"local_docker://torchx/{app_id}"
    for script, code in (("echo guest; exit 9", 9), ("kill -9 $$", 137), ("no-such-program", 127)):
        assert torchx("exec", handle, "--", "sh", "-c", script).returncode == code
    assert torchx("exec", handle, "touch", "/end").returncode == 0
    answer = ended(app_id)
    assert (answer.state, len(replicas(answer)[0].attempts), text(app_id)) == (AppState.SUCCEEDED, 1, "hi\n")


@pytest.mark.long
@pytest.mark.parametrize("policy", ["APPLICATION", "REPLICA"])
def test_a_job_outlives_the_name_of_its_image(policy: str, jobs: Jobs, tmp_path: Path) -> None:
    """As `docker rmi -f` removes it: a retry and all commands work, and a rerun says that it is missing."""
    image = fresh("gone")
    Engine().call("POST", f"/images/{IMAGE}/tag", {"repo": image, "tag": "latest"})
    script = "echo at $TORCHX_ATTEMPT; until [ -e /end ]; do sleep 0.1; done; test $TORCHX_ATTEMPT = 2"
    app_id = jobs.submit(sh(script, image=image, policy=policy, max_retries=1))
    running(app_id)
    Engine().call("DELETE", f"/images/{image}:latest", {"force": "true"})
    handle = f"local_docker://torchx/{app_id}"
    for attempt in (1, 2):
        wait_until(lambda n=attempt: f"at {n}" in text(app_id), "it runs")  # type: ignore[misc]
        for words in (["describe", handle], ["status", handle], ["diff", handle, handle], ["events", handle]):
            assert torchx(*words).returncode == 0, words
        assert torchx("exec", handle, "touch", "/end").returncode == 0
    assert ended(app_id).state is AppState.SUCCEEDED
    for words in (["describe"], ["log"], ["why"], ["report", "-o", str(tmp_path / "page.html")]):
        assert torchx(*words, handle).returncode == 0, words
    again = torchx("rerun", "-d", handle)
    assert again.returncode == 1
    assert f"the image {image} is not on the engine and cannot be pulled" in again.stderr
    assert torchx("delete", handle).returncode == 0
