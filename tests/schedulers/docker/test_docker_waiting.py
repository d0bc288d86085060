"""Applications in containers wait in the queue of this machine, beside local jobs."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import fakegpus
import local
import pytest
from containers import Jobs, containers, describe, ended, scheduler, text, until_logged
from engine import IMAGE
from program import COMMAND, environment, torchx
from queued import gpus_of, home, job, message, state, until_nothing_is_left, until_running, with_gpus
from support import wait_until

from torchx.errors import StateError
from torchx.leases.holders import holders, names_in_use
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.folder import images_of_waiting
from torchx.schedulers.docker.labels import ENDS_AT
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.docker]


def test_they_wait_in_one_order_with_local_jobs(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cret-of-the-application"
    first = waiting_jobs.submit(job(1, replicas=2, env={"PASSWORD": secret}), time_limit="100m")
    second = local.submit(with_gpus(local.sh("exec sleep 600"), 4))
    third = waiting_jobs.submit(job(1))
    expected = {
        first: "waiting for 2 GPUs: 1 of 4 is free; first in the queue",
        second: "waiting for 4 GPUs: 1 of 4 is free; second in the queue",
        third: "waiting for 1 GPU: 1 of 4 is free; third in the queue",
    }
    rows = json.loads(torchx("queue", "-o", "json").stdout)["waiting"]
    assert {row["app_id"]: row["reason"] for row in rows if row["own"]} == expected
    described = describe(first)
    assert (described.state, described.msg) == (AppState.SUBMITTED, expected[first])
    assert described.roles[0].env["PASSWORD"] == secret
    assert [replica.state for replica in described.roles_statuses[0].replicas] == [AppState.PENDING] * 2

    def listed() -> dict[str, tuple[AppState, str]]:
        return {row.app_id: (row.state, row.msg) for row in scheduler().list()}

    # a busy keeper may answer too late for one listing
    wait_until(lambda: listed()[third] == (AppState.SUBMITTED, expected[third]), "the list has the reason")
    assert containers(first) == []
    assert (scheduler().may_wait(first), text(first)) == (True, "")
    assert scheduler().wait(first, timeout=0.1) is False
    done = torchx("exec", f"local_docker://torchx/{first}/w/0", "true")
    assert f"{first} has not started: {expected[first]}" in done.stderr
    files = [path for path in home().path.rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o600"}
    # an application of another engine is not of this one
    with monkeypatch.context() as other:
        other.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
        assert scheduler().may_wait(first) is False

    local.scheduler().kill(busy)
    until_running(first)
    assert state(third) is AppState.SUBMITTED
    mine = gpus_of(first)
    assert len(set(mine)) == 2 and set(mine) <= set(machine.ids)
    assert {f"gpu-{gpu}" for gpu in machine.ids} & names_in_use() == {f"gpu-{gpu}" for gpu in mine}
    gpus = json.loads(torchx("queue", "-o", "json").stdout)["gpus"]
    assert {row["id"] for row in gpus if row["app"] == first} == set(mine)
    # the time limit counts from the start
    for one in containers(first):
        started = scheduler().describe(first)
        assert started is not None and started.started_at is not None
        assert int(one["Config"]["Labels"][ENDS_AT]) - started.started_at.timestamp() < 6010
    ends = holders([f"gpu-{mine[0]}"])[f"gpu-{mine[0]}"].ends
    assert ends is not None and ends > time.time(), "others may start ahead if they end before"
    until_logged(first, "started")
    scheduler().kill(first)
    assert ended(first).state is AppState.CANCELLED
    wait_until(lambda: local.describe(second).state is AppState.RUNNING, "the local job is next")
    local.scheduler().kill(second)
    until_running(third)
    scheduler().kill(third)
    assert ended(third).state is AppState.CANCELLED
    until_nothing_is_left(machine, first, third)


def test_waiting_jobs_can_be_reordered_and_cancelled(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str
) -> None:
    with pytest.raises(StateError, match="job requests 2 GPUs; this machine has 4, 1 of them free"):
        waiting_jobs.submit(job(2), no_wait=True)
    with pytest.raises(StateError, match="job requests 5 GPUs; this machine has 4"):
        waiting_jobs.submit(job(5))
    a, b = waiting_jobs.submit(job(2)), waiting_jobs.submit(job(2))
    beside = local.submit(with_gpus(local.sh("true"), 2))
    urgent = waiting_jobs.submit(job(4), priority=5)

    def order() -> list[str]:
        rows = json.loads(torchx("queue", "-o", "json").stdout)["waiting"]
        return [row["app_id"] for row in rows if row["own"]]

    assert order() == [urgent, a, b, beside]
    assert torchx("queue", "first", beside, b).returncode == 0
    assert order() == [urgent, beside, b, a]
    assert torchx("queue", "hold", urgent).returncode == 0
    wait_until(lambda: "held in the queue" in message(urgent), "it is held")
    assert torchx("queue", "release", urgent).returncode == 0
    wait_until(lambda: "first in the queue" in message(urgent), "it waits again")
    assert images_of_waiting(Engine().address) == {IMAGE}
    for app_id in (urgent, a):
        scheduler().cancel(app_id)
        assert ended(app_id).state is AppState.CANCELLED
        assert (containers(app_id), scheduler().may_wait(app_id)) == ([], False)
        assert list(scheduler().log_iter(app_id, "w", 0, should_tail=True)) == []
    assert order() == [beside, b]
    assert {pruned.app_id for pruned in scheduler().prune([urgent, b])} >= {urgent}
    assert not scheduler().exists(urgent)
    for app_id in (a, b):
        scheduler().delete(app_id)
        assert not scheduler().exists(app_id)
    local.scheduler().cancel(beside)
    local.ended(beside)
    local.scheduler().kill(busy)
    until_nothing_is_left(machine, urgent, a, b)


def test_a_killed_command_line_loses_nothing(
    machine: fakegpus.FakeGpus, waiting_jobs: Jobs, busy: str, tmp_path: Path
) -> None:
    run = [*COMMAND, "run", "-s", "local_docker", "utils.sh", "--image", IMAGE, "--memMB", "64", "--gpu", "2"]
    with subprocess.Popen([*run, "echo on its GPUs"], stdout=subprocess.PIPE, env=environment()) as killed:
        assert killed.stdout is not None
        app_id = killed.stdout.readline().decode().strip().rpartition("/")[2]
        waiting_jobs.ids.append(app_id)
        killed.kill()
    with subprocess.Popen(
        [*run, "echo attached; exit 3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    ) as attached:  # fmt: skip
        try:
            assert attached.stdout is not None and attached.stderr is not None
            waiting_jobs.ids.append(attached.stdout.readline().strip().rpartition("/")[2])
            lines = iter(attached.stderr.readline, "")
            reason = "waiting for 2 GPUs: 1 of 4 is free; second in the queue\n"
            assert f"note: {reason}" in lines, "other notes may precede it"
            assert state(app_id) is AppState.SUBMITTED
            local.scheduler().kill(busy)
            assert "attached\n" in "".join(lines)
            assert attached.wait(120) == 3
        finally:
            attached.kill()
    assert ended(app_id).state is AppState.SUCCEEDED
    assert text(app_id) == "on its GPUs\n"
    until_nothing_is_left(machine, *waiting_jobs.ids)
