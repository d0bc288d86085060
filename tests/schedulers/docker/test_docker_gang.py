"""Retries, fail-fast, the supervisor behind them, and what comes from outside."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path

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
    until_logged,
    until_over,
)
from program import torchx
from support import wait_until

from torchx.machine import locks as lock
from torchx.runner import get_runner
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.scheduling.logs import LogChunk, LogQuery
from torchx.specs.app import AppDef
from torchx.specs.mounts import BindMount
from torchx.specs.status import AppState
from torchx.testing.changes import recorded_changes

pytestmark = [pytest.mark.long, pytest.mark.docker]


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


def taken(port: int) -> socket.socket | None:
    """Takes a port from the engine; None while it is in use."""
    holder = socket.socket()
    try:
        holder.bind(("", port))
        holder.listen()
    except OSError:
        holder.close()
        return None
    return holder


def remove_container(app_id: str, end_of_name: str) -> None:
    """Removes a container behind the back of its supervisor."""
    victim = next(c["Id"] for c in containers(app_id) if c["Name"].endswith(end_of_name))
    Engine().call("DELETE", f"/containers/{victim}", {"force": 1})


def test_a_single_replica_starts_again_and_knows_its_attempt(jobs: Jobs, tmp_path: Path) -> None:
    again = "echo run $TORCHX_ATTEMPT; test $TORCHX_ATTEMPT = 3 || exit $TORCHX_ATTEMPT; touch /x/over"
    steady = sh("while [ ! -e /x/over ]; do sleep 0.05; done", name="steady")
    shaky = sh(again, max_retries=3, policy="REPLICA")
    for role in (steady, shaky):
        role.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(steady, shaky)
    assert text(app_id, follow=True) == "run 1\nrun 2\nrun 3\n"
    answer = describe(app_id)
    alone, replica = replicas(answer)
    assert [(a.number, a.exit_code) for a in alone.attempts] == [(1, 0)]
    assert [(a.number, a.exit_code) for a in replica.attempts] == [(1, 1), (2, 2), (3, 0)]
    assert (answer.num_restarts, replica.max_attempts) == (2, 4)


def test_containers_of_earlier_versions_are_restarted_by_the_engine(jobs: Jobs) -> None:
    script = "echo run; test -e /tmp/2 || { test -e /tmp/1 && touch /tmp/2; touch /tmp/1; exit 7; }"
    request = scheduler().submit_dryrun(AppDef("job", [sh(script, max_retries=5, policy="REPLICA")]), {})
    policy = {"Name": "on-failure", "MaximumRetryCount": 5}
    request.request.containers[0].body["HostConfig"]["RestartPolicy"] = policy
    app_id = scheduler().schedule(request)
    jobs.ids.append(app_id)
    assert text(app_id, follow=True) == "run\nrun\nrun\n"
    answer = describe(app_id)
    assert (answer.state, answer.num_restarts) == (AppState.SUCCEEDED, 2)
    (replica,) = replicas(answer)
    assert (replica.attempt, replica.max_attempts) == (3, 6)


def test_the_application_starts_again_as_a_whole(jobs: Jobs) -> None:
    other = sh("echo other; sleep 600", name="other")
    bad = sh("echo bad; sleep 0.2; exit 5", name="bad")
    for role in (other, bad):
        role.max_retries = 2
    answer = jobs.run(other, bad)
    assert answer.state is AppState.FAILED
    assert answer.num_restarts == 2
    assert answer.first_failure is not None
    assert (answer.first_failure.role, answer.first_failure.attempt, answer.first_failure.exit_code) == (
        "bad",
        3,
        5,
    )
    stopped, failed = replicas(answer)
    assert [a.state for a in stopped.attempts] == [AppState.CANCELLED] * 3
    assert [(a.number, a.exit_code) for a in failed.attempts] == [(1, 5), (2, 5), (3, 5)]
    assert text(answer.app_id).count("bad\n") == 3
    chunks = list(scheduler().log_chunks(answer.app_id, LogQuery({"bad": frozenset()})))
    assert [chunk.attempt for chunk in chunks] == [1, 2, 3]


def test_a_role_starts_again_alone(jobs: Jobs) -> None:
    steady = sh("sleep 4", name="steady")
    shaky = sh("echo shaky; exit 5", 2, name="shaky", policy="ROLE", max_retries=1)
    answer = jobs.run(steady, shaky, fail_fast=False)
    assert answer.state is AppState.FAILED
    assert [len(r.attempts) for r in replicas(answer)] == [1, 2, 2]
    assert replicas(answer)[0].state is AppState.SUCCEEDED


def test_a_retry_that_succeeds_is_a_success(jobs: Jobs, tmp_path: Path) -> None:
    role = sh("test -e /x/seen || { touch /x/seen; exit 1; }; echo well", 1, max_retries=1)
    role.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(role)
    assert text(app_id, follow=True) == "well\n"
    assert ended(app_id).state is AppState.SUCCEEDED
    until_over(app_id)


def test_a_retry_waits_for_what_is_in_its_way(jobs: Jobs, tmp_path: Path) -> None:
    port = free_port()
    role = sh("test -e /x/seen || { touch /x/seen; exit 1; }", port_map={"web": port}, max_retries=1)
    role.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(role, retry_backoff=3.0)
    log = supervised_in(app_id).supervisor_log
    with closing(wait_until(lambda: taken(port), "its port is free")):
        wait_until(lambda: "a retry failed" in log.read_text(), "the engine has refused the retry")
        assert describe(app_id).state is AppState.RUNNING
    answer = ended(app_id)
    assert (answer.state, answer.num_restarts) == (AppState.SUCCEEDED, 1)


@pytest.mark.parametrize("network", ["none", "host", "bridge"])
def test_a_retry_stays_in_a_network_without_names(jobs: Jobs, network: str) -> None:
    answer = jobs.run(sh("exit 5", max_retries=1, metadata={"local_docker": {"network": network}}))
    assert (answer.state, answer.num_restarts) == (AppState.FAILED, 1)
    assert [c["HostConfig"]["NetworkMode"] for c in containers(answer.app_id)] == [network] * 2
    assert [(a.number, a.exit_code) for a in replicas(answer)[0].attempts] == [(1, 5), (2, 5)]


def test_one_failure_ends_the_others_by_default(jobs: Jobs) -> None:
    good, bad = sh("sleep 600", 2, name="good"), sh("exit 4", name="bad")
    answer = jobs.run(good, bad)
    assert answer.state is AppState.FAILED
    assert [r.state.name for r in replicas(answer)] == ["CANCELLED", "CANCELLED", "FAILED"]
    assert replicas(answer)[0].attempts[0].msg == "another replica failed"
    good = sh("sleep 2", name="good")
    answer = jobs.run(good, bad, fail_fast=False)
    assert [r.state.name for r in replicas(answer)] == ["SUCCEEDED", "FAILED"]


def test_a_supervisor_that_was_killed_is_followed_by_another(jobs: Jobs, tmp_path: Path) -> None:
    bad = sh("while [ ! -e /x/go ]; do sleep 0.05; done; exit 4", name="bad")
    bad.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(sh("sleep 600", name="good"), bad)
    pid = supervisor_of(app_id)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lock.is_held(supervised_in(app_id).lock), "its lock is free")
    with recorded_changes() as changes:
        seen = describe(app_id)
        assert [app.state for app in scheduler().list() if app.app_id == app_id] == [AppState.RUNNING]
        assert text(app_id) == ""
    assert changes == []
    assert (seen.state, seen.needs_reconcile) == (AppState.RUNNING, True)
    assert not lock.is_held(supervised_in(app_id).lock)
    with get_runner() as runner:
        status = runner.status(f"local_docker://torchx/{app_id}")
    assert status is not None
    assert status.state is AppState.RUNNING
    assert lock.is_held(supervised_in(app_id).lock)
    assert not describe(app_id).needs_reconcile
    (tmp_path / "go").touch()
    answer = ended(app_id)
    assert [r.state.name for r in replicas(answer)] == ["CANCELLED", "FAILED"]


def test_who_follows_the_logs_brings_another_supervisor(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    app_id = jobs.submit(sh("echo up; sleep 600", 2))
    wait_until(lambda: text(app_id).count("up") == 2, "both are up")
    held = supervised_in(app_id).lock
    monkeypatch.setattr("torchx.schedulers.docker.logs.POLL_INTERVAL", 0.2)
    seen: list[LogChunk] = []
    lines = scheduler().log_chunks(app_id, LogQuery(follow=True))
    follower = threading.Thread(target=seen.extend, args=(lines,))
    follower.start()
    try:
        wait_until(lambda: len(seen) == 2, "the lines are there")
        pid = supervisor_of(app_id)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(
            lambda: supervisor_of(app_id) not in (pid, None) and lock.is_held(held), "there is another"
        )
    finally:
        scheduler().kill(app_id)
        follower.join()


def test_a_container_that_was_removed_is_a_failure(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("sleep 600", 2))
    running(app_id, 2)
    remove_container(app_id, "-1")
    answer = ended(app_id)
    assert (answer.state, answer.msg) == (AppState.FAILED, "the container of w/1 was removed")
    assert answer.first_failure is not None
    assert answer.first_failure.msg == "its container was removed"


def test_job_with_a_removed_replica_is_not_restarted(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("sleep 600", 2, max_retries=2))
    running(app_id, 2)
    remove_container(app_id, "-0")
    answer = ended(app_id)
    assert (answer.state, answer.msg) == (AppState.FAILED, "the container of w/0 was removed")
    assert [len(replica.attempts) for replica in replicas(answer)] == [0, 1]


def test_what_is_removed_after_its_success_leaves_others_alone(jobs: Jobs, tmp_path: Path) -> None:
    until = "while [ ! -e /x/{0} ]; do sleep 0.05; done; echo {0}"
    later, last = sh(until.format("later"), name="later"), sh(until.format("last"), name="last")
    for role in (later, last):
        role.mounts = [BindMount(str(tmp_path), "/x")]
    app_id = jobs.submit(sh("true", name="short"), later, last)
    held = supervised_in(app_id).lock
    seen = supervised_in(app_id).events
    wait_until(
        lambda: seen.exists() and "-short-0" in seen.read_text(),
        "its supervisor has seen the end of the first",
    )
    pid = supervisor_of(app_id)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not lock.is_held(held), "another comes to it as it is")
    remove_container(app_id, "-short-0")
    assert describe(app_id).state is AppState.RUNNING
    scheduler().reconcile(app_id)
    (tmp_path / "later").touch()
    wait_until(lambda: "-later-0" in seen.read_text(), "the next supervisor has looked")
    (tmp_path / "last").touch()
    assert ended(app_id).state is AppState.SUCCEEDED
    assert text(app_id) == "later\nlast\n"


def test_a_paused_replica_is_shown_and_can_be_cancelled(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("sleep 600"))
    running(app_id)
    Engine().call("POST", f"/containers/{containers(app_id)[0]['Id']}/pause")
    (replica,) = replicas(describe(app_id))
    assert (replica.state, replica.attempts[0].msg) == (AppState.RUNNING, "paused")
    handle = f"local_docker://torchx/{app_id}"
    assert re.search(r"\n  0  RUNNING .*  paused\n", torchx("status", handle).stdout)
    refused = torchx("exec", handle, "true")
    assert refused.stderr.splitlines() == [
        f"error: w/0 of {app_id} is paused",
        f"  resume it: docker unpause {replica.hostname}",
    ]
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_what_waits_for_its_retry_can_be_cancelled(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo once; exit 1", max_retries=3), retry_backoff=600.0)
    wait_until(lambda: describe(app_id).msg == "waiting for its next attempt", "its back-off")
    assert describe(app_id).state is AppState.RUNNING
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert text(app_id) == "once\n"
    until_over(app_id)


def test_what_starts_again_and_again_can_be_cancelled(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("echo run; exit 1", max_retries=1000, policy="REPLICA"))
    wait_until(lambda: text(app_id).count("run") > 3, "some restarts")
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_containers_of_another_program_are_reported_too(jobs: Jobs) -> None:
    engine, theirs = Engine(), fresh("their-job")
    label = "torchx.pytorch.org/"
    labels = {f"{label}app-id": theirs, f"{label}role-name": "sh", f"{label}replica-id": "0"}
    name = f"{theirs}-sh-0"
    command = {"Image": "torchx-test:latest", "Cmd": ["sh", "-c", "echo theirs; exit 3"]}
    body = {**command, "Labels": labels, "Hostname": name}
    made = engine.call("POST", "/containers/create", {"name": name}, body)["Id"]
    jobs.ids.append(theirs)
    engine.call("POST", f"/containers/{made}/start")
    answer = ended(theirs)
    assert answer.state is AppState.FAILED
    assert answer.first_failure is not None
    assert answer.first_failure.exit_code == 3
    assert [role.name for role in answer.roles] == ["sh"]
    until_logged(theirs, "theirs")
