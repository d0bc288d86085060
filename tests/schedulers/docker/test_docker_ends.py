"""The end of applications on request: in parallel, within the grace time, and with nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from containers import (
    Jobs,
    containers,
    describe,
    ended,
    replicas,
    running,
    scheduler,
    sh,
    supervisor_of,
    text,
    until_logged,
)
from engine import IMAGE
from support import wait_until

from torchx.errors import StateError
from torchx.machine import locks as lock
from torchx.schedulers.docker.cancel import cancel
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.lookup import containers_of
from torchx.schedulers.docker.replay import replay
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.supervisor import Supervisor
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker

DEAF = "trap '' TERM; echo up; while true; do sleep 0.2; done"
ROOT = Path(__file__).parents[3]


def test_term_reaches_the_program_at_once(jobs: Jobs) -> None:
    app_id = jobs.submit(
        sh("trap 'echo tidied; exit 0' TERM; echo up; while true; do sleep 0.1; done"), grace_period=40.0
    )
    until_logged(app_id, "up")
    before = time.monotonic()
    scheduler().cancel(app_id)
    result = ended(app_id)
    assert time.monotonic() - before < 30, "it does not wait for the grace time"
    assert result.state is AppState.CANCELLED
    assert (replicas(result)[0].state, replicas(result)[0].exit_code) == (AppState.CANCELLED, 0)
    assert text(app_id) == "up\ntidied\n"


def test_all_that_ignore_term_are_killed_after_grace_time(jobs: Jobs) -> None:
    app_id = jobs.submit(sh(DEAF, 8), grace_period=1.5)
    wait_until(lambda: text(app_id).count("up") == 8, "all are up")
    before = time.time()
    scheduler().cancel(app_id)
    result = ended(app_id)
    assert {(r.state, r.signal) for r in replicas(result)} == {(AppState.CANCELLED, "SIGKILL")}
    ends = [end.timestamp() for r in replicas(result) if (end := r.attempts[-1].ended_at) is not None]
    assert len(ends) == 8
    assert min(ends) - before > 1.4
    assert max(ends) - min(ends) < 7 * 1.5, "one after the other"


def test_cancel_that_is_cut_off_ends_all_same(jobs: Jobs) -> None:
    app_id = jobs.submit(sh(DEAF), grace_period=3.0)
    until_logged(app_id, "up")
    lock_of = supervised_in(app_id).lock
    pid = supervisor_of(app_id)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lock.is_held(lock_of), "nothing supervises it")
    shutil.rmtree(lock_of.parent)  # as with an engine on another machine
    lock_of = supervised_in(app_id).lock
    words = ["cancel", f"local_docker://torchx/{app_id}"]
    with subprocess.Popen([sys.executable, "-m", "torchx_cli", *words], cwd=ROOT) as cancelling:
        try:
            wait_until(lambda: lock.is_held(lock_of), "somebody else sees to the end")
        finally:
            cancelling.kill()
    assert (describe(app_id).state, describe(app_id).msg) == (AppState.RUNNING, "it is being cancelled")
    result = ended(app_id)
    assert (result.state, replicas(result)[0].signal) == (AppState.CANCELLED, "SIGKILL")
    wait_until(lambda: not lock_of.parent.exists(), "it has gone, too")


def test_each_replica_gets_one_signal_to_end(jobs: Jobs) -> None:
    script = "trap 'echo requested' TERM; echo up; until [ -e /tmp/over ]; do sleep 0.1; done"
    app_id = jobs.submit(sh(script, 3), grace_period=2.0)
    wait_until(lambda: text(app_id).count("up") == 3, "all are up")
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert text(app_id).count("requested") == 3


def test_who_has_succeeded_before_keeps_the_result(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("true", name="a"), sh("sleep 600", name="b"))
    wait_until(lambda: replicas(describe(app_id))[0].state is AppState.SUCCEEDED, "the first has ended")
    scheduler().cancel(app_id)
    result = ended(app_id)
    assert result.state is AppState.CANCELLED
    assert [r.state.name for r in replicas(result)] == ["SUCCEEDED", "CANCELLED"]


class Overtaken(Engine):
    """An engine on which somebody else always kills first."""

    def call(self, method: str, path: str, query: Any = None, body: Any = None, patience: Any = 60.0) -> Any:
        if path.endswith("/kill"):
            super().call(method, path, query)
            super().call("POST", path.replace("/kill", "/wait"))
        return super().call(method, path, query, body, patience)


class EndsFirst(Engine):
    """An engine on which the program ends by itself just before it is signalled."""

    def call(self, method: str, path: str, query: Any = None, body: Any = None, patience: Any = None) -> Any:
        if path.endswith("/kill"):
            name = path.removesuffix("/kill")
            command = {"Cmd": ["touch", "/tmp/end"]}
            program = super().call("POST", f"{name}/exec", body=command)["Id"]
            super().call("POST", f"/exec/{program}/start", body={"Detach": True})
            super().call("POST", f"{name}/wait")
        return super().call(method, path, query, body, patience)


@pytest.mark.parametrize(("retries", "state"), [(5, AppState.CANCELLED), (0, AppState.FAILED)])
def test_a_failure_during_the_cancellation_is_not_retried(retries: int, state: AppState, jobs: Jobs) -> None:
    script = "until [ -e /tmp/end ]; do sleep 0.05; done; exit 3"
    app_id = jobs.submit(sh(script, max_retries=retries), retry_backoff=600.0)
    running(app_id)
    cancel(EndsFirst(), app_id)
    result = ended(app_id)
    assert (result.state, [len(r.attempts) for r in replicas(result)]) == (state, [1])


def test_an_application_that_another_process_cancels_first_is_cancelled(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("sleep 600", 2))
    running(app_id, 2)
    cancel(Overtaken(), app_id)
    result = ended(app_id)
    assert [result.state, *(r.state for r in replicas(result))] == [AppState.CANCELLED] * 3


def test_cancelled_is_seen_by_all_and_for_good(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app_id = jobs.submit(sh("sleep 600"))
    running(app_id)
    scheduler().cancel(app_id)
    ended(app_id)
    assert containers(app_id)[0]["Name"].endswith("-w-0.cancelled")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "elsewhere"))
    assert describe(app_id).state is AppState.CANCELLED
    assert [line.state for line in scheduler().list() if line.app_id == app_id] == [AppState.CANCELLED]


def test_delete_takes_anonymous_volumes_along(jobs: Jobs) -> None:
    role = sh("sleep 600", metadata={"local_docker": {"mounts": [{"Type": "volume", "Target": "/scratch"}]}})
    app_id = jobs.submit(role)
    running(app_id)
    (volume,) = [mount["Name"] for mount in containers(app_id)[0]["Mounts"]]
    volumes = Engine().call("GET", "/volumes")["Volumes"]
    assert volume in [v["Name"] for v in volumes]
    scheduler().delete(app_id)
    assert volume not in [v["Name"] for v in Engine().call("GET", "/volumes")["Volumes"] or ()]
    assert containers(app_id) == []


def test_ctrl_c_cancels_all_replicas(tmp_path: Path) -> None:
    words = [
        "run",
        "-s",
        "local_docker",
        "utils.sh",
        "--image",
        IMAGE,
        "--num_replicas",
        "3",
        "echo up; sleep 600",
    ]
    command = [sys.executable, "-m", "torchx_cli", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as run:
        assert run.stdout is not None
        app_id = run.stdout.readline().strip().rpartition("/")[2]
        try:
            wait_until(lambda: text(app_id).count("up") == 3, "all are up")
            run.send_signal(signal.SIGINT)
            _, said = run.communicate(timeout=120)
            assert run.returncode == 130
            assert f"{app_id} CANCELLED" in said
            assert {c["State"]["Status"] for c in containers(app_id)} == {"exited"}
        finally:
            scheduler().delete(app_id)


def test_log_of_what_is_not_known_is_error() -> None:
    with pytest.raises(StateError, match="knows no application `no-such-app`"):
        text("no-such-app")


def test_prune_removes_ended_and_keeps_running(jobs: Jobs) -> None:
    ended_id, live = jobs.submit(sh("true", 2)), jobs.submit(sh("sleep 600"))
    ended(ended_id)
    running(live)
    assert [p.app_id for p in scheduler().prune([ended_id, live, "no-such-id"], dryrun=True) if p.app_id] == [
        ended_id
    ]
    assert len(containers(ended_id)) == 2
    assert [p.app_id for p in scheduler().prune([ended_id, live]) if p.app_id] == [ended_id]
    assert containers(ended_id) == []
    assert len(containers(live)) == 1


def test_a_cancellation_of_a_created_retry_is_kept(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("exit 1", max_retries=5), retry_backoff=600.0)
    wait_until(lambda: replicas(describe(app_id))[0].exit_code == 1, "it waits for its retry")

    class Cancels(Engine):
        """An engine on which the application is cancelled as soon as the next container exists."""

        def call(self, method: str, path: str, *args: Any, **named: Any) -> Any:
            answer = super().call(method, path, *args, **named)
            if path == "/containers/create":
                cancel(Engine(), app_id)
            return answer

    own = wait_until(lambda: supervisor_of(app_id), "it has a supervisor")
    assert own is not None
    os.kill(own, signal.SIGSTOP)  # it would start a container that another process has created
    try:
        present = containers_of(Engine(), app_id)
        Supervisor(Cancels(), app_id, supervised_in(app_id))._start_all(replay(job_of(present), present), [0])
    finally:
        os.kill(own, signal.SIGCONT)
    assert ended(app_id).state is AppState.CANCELLED
    assert [len(r.attempts) for r in replicas(describe(app_id))] == [2]
    assert [c["State"]["StartedAt"] > "0002" for c in containers(app_id)].count(True) == 1


@pytest.mark.parametrize(
    ("mark", "cfg"),
    [
        ("stopped", {}),
        pytest.param(
            "expired", {"time_limit": "1s", "requeue_on": "time-limit:1000"}, marks=pytest.mark.long
        ),
        pytest.param("stalled", {"stall": "0.5s", "on_stall": "restart"}, marks=pytest.mark.long),
    ],
)
def test_a_cancellation_before_a_restart_is_final(mark: str, cfg: dict[str, Any], jobs: Jobs) -> None:
    script = f"test $TORCHX_REPLICA = w/1 || exit 1; {DEAF}" if mark == "stopped" else DEAF
    app_id = jobs.submit(sh(script, 2, max_retries=1000), **cfg)
    wait_until(
        lambda: any(c["Name"].endswith(f".{mark}") for c in containers(app_id)),
        "a replica is stopped, as others are restarted",
    )
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    wait_until(lambda: supervisor_of(app_id) is None, "its supervisor has ended")
    assert describe(app_id).state is AppState.CANCELLED


@pytest.mark.long
@pytest.mark.parametrize("policy", ["APPLICATION", "ROLE", "REPLICA"])
def test_a_cancellation_between_attempts_is_final(policy: str, jobs: Jobs) -> None:
    for moment in range(8):
        app_id = jobs.submit(sh("exit 1", max_retries=1000, policy=policy), retry_backoff=0.05)
        wait_until(lambda app_id=app_id, n=moment: len(containers(app_id)) > n // 3, "attempts")  # type: ignore[misc]
        scheduler().cancel(app_id)
        assert ended(app_id).state is AppState.CANCELLED
        begun = len(describe(app_id).roles_statuses[0].replicas[0].attempts)
        wait_until(lambda app_id=app_id: supervisor_of(app_id) is None, "its supervisor has ended")  # type: ignore[misc]
        result = describe(app_id)
        assert (result.state, len(replicas(result)[0].attempts)) == (AppState.CANCELLED, begun)
