"""What others see of a job in containers, and what they can do to those who look: nothing."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, containers, describe, ended, fresh, scheduler, sh, text, until_logged
from engine import IMAGE
from hidden import check_no_view_of_a_sweep_shows_secrets, check_no_view_shows_secrets
from program import torchx
from support import wait_until

from torchx.errors import StateError
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.labels import APP_ID, JOB, REPLICA, ROLE, USER
from torchx.schedulers.docker.record import job_data
from torchx.schedulers.docker.request import container_name
from torchx.specs.app import AppDef
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker


def outside_of_containers() -> list[str]:
    """The command lines of the processes of this machine that are in no container."""
    found = []
    own = os.readlink("/proc/self/ns/pid")
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(folder / "ns" / "pid") == own:
                found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
    return found


def test_values_of_job_are_seen_by_its_user_alone(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("TORCHX_HOME", str(home))
    canary, secret = f"canary{uuid.uuid4().hex}", f"secret{uuid.uuid4().hex}"
    begun = time.time() - 1
    role = sh("echo up; exec sleep 600", 2, env={"KEY": canary}, max_retries=1)
    role.args.append(secret)
    role.metadata = {"other": {"env": {"KEY": canary}}}
    before = os.umask(0)
    try:
        app_id = jobs.submit(role, env={"ALSO": canary}, grace_period=1.0)
        until_logged(app_id, "up")
        processes = outside_of_containers()
        listed = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True, check=True)
        assert app_id in "".join(processes), "its supervisor is seen"
        kept = {path: path.lstat() for path in [home, *home.rglob("*")]}
        engine = Engine()
        engine.call("POST", f"/containers/{containers(app_id)[0]['Id']}/kill")
        wait_until(lambda: len(containers(app_id)) == 4, "the retry has its containers")
        said = torchx("--debug", "--log_level", "DEBUG", "status", f"local_docker://torchx/{app_id}")
        scheduler().kill(app_id)
        ended(app_id)
    finally:
        os.umask(before)
    parameters = {"all": 1, "filters": {"label": [f"{APP_ID}={app_id}"]}}
    in_ps = json.dumps(engine.call("GET", "/containers/json", parameters))
    query = {"since": f"{begun:.6f}", "until": f"{time.time():.6f}", "filters": {"type": ["container"]}}
    events = json.dumps(engine.call("GET", "/events", query))
    labels = json.dumps([c["Config"]["Labels"] for c in containers(app_id)])
    assert app_id in in_ps and app_id in events
    assert said.returncode == 0, said.stderr
    for where in ("\0".join(processes), listed.stdout, in_ps, events, labels, said.stdout + said.stderr):
        assert canary not in where
    for where in ("\0".join(processes), events, labels, said.stdout + said.stderr):
        assert secret not in where  # the engine itself shows the command of a container in `docker ps`
    assert len(kept) > 4
    for path, status in kept.items():
        assert stat.S_IMODE(status.st_mode) & 0o077 == 0, path
    assert describe(app_id).roles[0].env == {"KEY": canary}, "and here nothing is lost"


@pytest.fixture
def made() -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for container in made:
        with suppress(StateError):
            Engine().call("DELETE", f"/containers/{container}", {"force": 1})


def make(made: list[str], labels: dict[str, str], *command: str) -> str:
    """Makes a container as anyone may, with the host name of a replica; starts it when it has a command."""
    body: dict[str, Any] = {"Image": IMAGE, "Cmd": list(command) or ["true"], "Labels": labels}
    if labels.get(ROLE):
        body["Hostname"] = container_name(labels[APP_ID], labels[ROLE], 0)
    container = Engine().call("POST", "/containers/create", {"name": fresh("foreign")}, body)["Id"]
    made.append(container)
    if command:
        Engine().call("POST", f"/containers/{container}/start")
    return str(container)


def poisons(name: str) -> list[dict[str, str]]:
    """Labels that are not as this program writes them, each of another application."""
    sound = {ROLE: "w", REPLICA: "0"}
    roles = {"name": "w", "image": "x", "max_retries": 0, "retry_policy": "REPLICA"}
    counted = {"schema": 1, "app": {"name": "x", "roles": [{**roles, "num_replicas": 10**9}]}}
    jobs: list[Any] = [
        "{",
        [],
        {},
        {"schema": 1},
        {"schema": 99},
        counted,
        {"schema": 1, "app": {"roles": 1}},
    ]
    texts = [one if isinstance(one, str) else json.dumps(one) for one in jobs]
    texts += ["[" * 50_000, '{"schema": 1, "session": "a\\nb", "app": "\\ud800"}']
    of_jobs = [{**sound, APP_ID: f"{name}{n}", JOB: one} for n, one in enumerate(texts)]
    others = [
        {APP_ID: f"{name}a"},
        {**sound, APP_ID: f"{name}b", REPLICA: "²"},
        {**sound, APP_ID: f"{name}c", ROLE: "a\nb"},
        {**sound, APP_ID: f"{name}d", "torchx.pytorch.org/retry": '{"attempts": 3, "used": []}'},
        {**sound, APP_ID: ""},
        {**sound, APP_ID: "../../../etc"},
        {**sound, APP_ID: "a\nb"},
    ]
    return of_jobs + others


def test_damaged_containers_hide_nothing_and_can_be_deleted(jobs: Jobs, made: list[str]) -> None:
    name = fresh("poison")
    poisoned = [make(made, labels) for labels in poisons(name)]
    app_id = jobs.submit(sh("echo hi"))
    foreign = make(made, {APP_ID: app_id, ROLE: "w", REPLICA: "0", JOB: "{"})
    assert (ended(app_id).state, text(app_id)) == (AppState.SUCCEEDED, "hi\n")
    lines = {line.app_id: line for line in scheduler().list()}
    assert lines[app_id].state is AppState.SUCCEEDED
    ids = [i for i in lines if i.startswith(name) or i.removeprefix("damaged-") in {c[:12] for c in poisoned}]
    assert len(ids) == len(poisoned)
    for damaged in ids:
        assert lines[damaged].state is AppState.UNKNOWN
        assert lines[damaged].msg.startswith(("its label", "it has no", "it was made")), lines[damaged].msg
        assert scheduler().describe(damaged) is not None
        with pytest.raises(StateError, match="cannot be read: "):
            text(damaged)
        scheduler().delete(damaged)
        assert not scheduler().exists(damaged)
    scheduler().delete(app_id)
    left = {c["Id"] for c in Engine().call("GET", "/containers/json", {"all": 1})}
    assert not left & {*poisoned, foreign}


def test_a_damaged_container_that_runs_can_be_ended(made: list[str]) -> None:
    app_id = fresh("poison")
    make(made, {APP_ID: app_id, JOB: "{"}, "sleep", "600")
    assert scheduler().wait(app_id, 0.1) is False
    scheduler().kill(app_id)
    assert scheduler().wait(app_id, 30.0) is True
    scheduler().delete(app_id)


def test_the_application_of_another_user_is_left_alone(made: list[str]) -> None:
    app_id = fresh("theirs")
    container = make(made, {APP_ID: app_id, ROLE: "w", REPLICA: "0", USER: "somebody"}, "sleep", "600")
    for act, verb in ((scheduler().cancel, "cancelled"), (scheduler().kill, "cancelled")):
        with pytest.raises(StateError, match=rf"was not {verb}: .*the user somebody.*\n.*docker stop"):
            act(app_id)
    with pytest.raises(StateError, match=r"was not deleted: .*\n.*docker rm -f"):
        scheduler().delete(app_id)
    assert Engine().call("GET", f"/containers/{container}/json")["State"]["Running"] is True
    Engine().call("POST", f"/containers/{container}/kill")
    assert scheduler().wait(app_id, 30.0)
    assert [pruned for pruned in scheduler().prune([app_id]) if pruned.app_id] == []
    assert scheduler().exists(app_id)


def test_what_the_first_version_has_written_is_read(made: list[str]) -> None:
    """Its label held the whole application, its environment and arguments included."""
    app_id = fresh("older")
    role = sh("exit 3", env={"A": "1"}, metadata={"x": {"y": 1}})
    data = {**job_data(AppDef("old", [role], {"team": "a"}), {"env": {"B": "2"}}, "torchx"), "schema": 1}
    labels = {APP_ID: app_id, ROLE: "w", REPLICA: "0", JOB: json.dumps(data)}
    make(made, labels, "sh", "-c", "exit 3")
    result = ended(app_id)
    assert (result.state, result.roles, result.metadata) == (AppState.FAILED, [role], {"team": "a"})
    assert result.cfg["env"] == {"B": "2"}
    scheduler().delete(app_id)


def test_no_view_shows_a_printed_secret(tmp_path: Path) -> None:
    check_no_view_shows_secrets(tmp_path, "-s", "local_docker", image=IMAGE)


def test_no_view_of_a_sweep_shows_a_printed_secret(tmp_path: Path) -> None:
    check_no_view_of_a_sweep_shows_secrets(tmp_path, "-s", "local_docker", image=IMAGE)
