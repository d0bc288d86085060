"""Many jobs at once, names of any characters, and a start that is killed in its middle."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from containers import Jobs, containers, describe, ended, replicas, scheduler, sh, text
from engine import IMAGE

from torchx.runner import api as runner_api
from torchx.runner.api import Runner
from torchx.schedulers.docker import wait as docker_wait
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.request import NETWORK
from torchx.scheduling import pace
from torchx.specs.app import AppDef
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.docker]

ROOT = Path(__file__).parents[3]


def test_many_jobs_of_one_name_at_once(jobs: Jobs) -> None:
    threads = [threading.Thread(target=jobs.submit, args=(sh("echo $TORCHX_REPLICA"),)) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(jobs.ids)) == 50
    for app_id in jobs.ids:
        assert ended(app_id).state is AppState.SUCCEEDED
        assert text(app_id) == "w/0\n"
    listed = {line.app_id: line.exit_code for line in scheduler().list()}
    assert {listed[app_id] for app_id in jobs.ids} == {0}


def test_a_second_network_of_the_same_name_is_removed(jobs: Jobs) -> None:
    """Docker makes one if two submissions with state homes of their own are the first of an engine."""
    jobs.run(sh("true"))  # the first network
    engine = Engine()
    body = {"Name": NETWORK, "Driver": "bridge", "CheckDuplicate": False}
    second = engine.call("POST", "/networks/create", None, body)["Id"]
    assert ended(jobs.submit(sh("true", 2))).state is AppState.SUCCEEDED
    left = [network["Id"] for network in engine.call("GET", "/networks") if network["Name"] == NETWORK]
    assert len(left) == 1
    assert second not in left


def test_names_and_metadata_may_have_any_characters(jobs: Jobs) -> None:
    role = sh("hostname; echo $TORCHX_RANK0_HOST", name="tränier one", metadata={"k": 'a"b,c=d\n$x é'})
    app_id = scheduler().submit(AppDef("job", [role], {"team/é": 'quote " and = and ,'}), {})
    jobs.ids.append(app_id)
    result = ended(app_id)
    assert result.state is AppState.SUCCEEDED
    assert (result.roles[0].metadata, result.metadata) == (role.metadata, {"team/é": 'quote " and = and ,'})
    host = containers(app_id)[0]["Config"]["Hostname"]
    assert list(scheduler().log_iter(app_id, role.name, 0)) == [f"{host}\n", f"{host}\n"]


def test_long_names_fit_into_a_host_name(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("hostname", 12, name="r" * 60), name="n" * 60)
    result = ended(app_id)
    assert result.state is AppState.SUCCEEDED
    hosts = {replica.hostname for replica in replicas(result)}
    assert len(hosts) == 12
    assert all(len(host) <= 63 for host in hosts)


def test_a_submission_that_is_killed_can_be_removed(jobs: Jobs) -> None:
    """Killed where nothing can be undone any more: what was made is seen, and goes with a delete."""
    code = (
        "import sys, os, signal; sys.path[:0] = [sys.argv[1]]\n"
        "from torchx.schedulers.docker import submit as docker_submit\n"
        "docker_submit._check_programs = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from torchx_cli.main import main; main(sys.argv[2:])"
    )
    # a name of its own, since other tests submit to the same engine meanwhile
    words = ["run", "-s", "local_docker", "utils.python", "--name", "killed-half-way", "--image", IMAGE]
    words += ["--num_replicas", "2", "-c", "print('hi')"]
    done = subprocess.run([sys.executable, "-c", code, str(ROOT), *words], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    (app_id,) = [line.app_id for line in scheduler().list() if line.name == "killed-half-way"]
    jobs.ids.append(app_id)
    assert describe(app_id).msg == "its start was interrupted"
    # this machine has its record: the supervisor that the next command starts goes on with it
    assert ended(app_id).state is AppState.SUCCEEDED
    scheduler().delete(app_id)
    assert containers(app_id) == []


def test_waits_for_many_applications_share_a_listing(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    apps = [f"local_docker://torchx/{jobs.submit(sh('exec sleep 600'))}" for _ in range(8)]
    listings: list[str] = []
    call = Engine.call

    def counted(engine: Engine, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        listings.extend([path] if path == "/containers/json" else [])
        return call(engine, method, path, *args, **kwargs)

    monkeypatch.setattr(Engine, "call", counted)
    begun = threading.Barrier(len(apps) + 1)
    wait = Events.wait_for_all

    def waiting(events: Events, *args: Any) -> bool:
        begun.wait(60)
        begun.wait(60)  # counted
        return wait(events, *args)

    monkeypatch.setattr(Events, "wait_for_all", waiting)
    share, turn = pace.sharing, threading.Barrier(len(apps))

    def sharing_at_once(since: float) -> AbstractContextManager[None]:
        """Begins after the others have chosen the earliest time of their answers, too."""
        turn.wait(60)
        return share(since)

    with Runner("torchx") as runner, ThreadPoolExecutor(len(apps)) as pool:
        with pace.together(len(apps)):
            assert all(runner.exists(app) and runner.status(app) for app in apps)
        assert len(listings) == 1
        monkeypatch.setattr(runner_api, "sharing", sharing_at_once)
        monkeypatch.setattr(docker_wait, "sharing", sharing_at_once)
        waits = [pool.submit(runner.wait, app) for app in apps]
        begun.wait(60)
        assert len(listings) == 3, "one for the statuses, and one for what they wait for"
        monkeypatch.undo()
        begun.wait(60)
        for app in apps:
            runner.kill(app)
        states = [status.state for each in waits if (status := each.result())]
    assert states == [AppState.CANCELLED] * len(apps)
