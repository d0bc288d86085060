"""How jobs are ended at awkward moments, and how what will not end is ended all the same."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    kill_supervision,
    paths,
    processes_of,
    replicas,
    run,
    running,
    scheduler,
    sh,
    submit,
    text,
)
from program import ROOT
from support import wait_until

from torchx.machine import processes
from torchx.specs.app import Role
from torchx.specs.status import AppState

TRY_MOMENTS = 25

NO_MAIN_THREAD = """
import ctypes, threading, time
def work():
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""

RESTARTS_ITSELF = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(0.02)
    if os.fork(): os._exit(0)
    os.setsid()
"""
"""Another process each moment: none lives long enough to outlive a grace period of its own."""


def python(code: str) -> Role:
    return Role("w", image="", entrypoint=sys.executable, args=["-c", code.replace("$", "$$")])


@pytest.mark.long
def test_cancel_at_any_moment_of_the_start() -> None:
    moments = random.Random(7)
    for _ in range(TRY_MOMENTS):
        app_id = submit(sh("sleep 600", 20))
        deadline = time.monotonic() + moments.uniform(0, 0.06)
        while time.monotonic() < deadline:
            pass
        scheduler().cancel(app_id)
        assert ended(app_id).state is AppState.CANCELLED
        assert_nothing_runs(app_id)


def test_cancel_between_two_attempts() -> None:
    app_id = submit(sh("echo ready; exit 3", retries=3), retry_backoff=600.0)
    wait_until(lambda: '"e":"retry"' in paths(app_id).events.read_text(), "it waits for the next attempt")
    scheduler().cancel(app_id)
    done = ended(app_id)
    assert done.state is AppState.CANCELLED
    assert [a.exit_code for a in replicas(done)[0].attempts] == [3]


def test_cancel_during_a_failure_does_not_hide_it() -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    app_id = submit(sh(f"[ ${{replica_id}} = 1 ] && exit 7; {stubborn}", 2), grace_period=600.0)
    wait_until(lambda: '"code":7' in paths(app_id).events.read_text(), "the failure is on record")
    scheduler().kill(app_id)
    done = ended(app_id)
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.replica, done.first_failure.exit_code) == (1, 7)
    assert_nothing_runs(app_id)


def test_cancel_reaches_a_job_where_nothing_can_be_written() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    paths(app_id).cancel.mkdir()  # as good as a full disk: no request can be left
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_a_process_whose_main_thread_has_ended_is_ended() -> None:
    app_id = submit(python(NO_MAIN_THREAD))
    wait_until(lambda: text(app_id) == "ready\n", "it is ready")
    pid = replicas(describe(app_id))[0].pid
    assert pid is not None
    wait_until(lambda: b") Z" in Path(f"/proc/{pid}/stat").read_bytes(), "it looks like a leftover")
    scheduler().cancel(app_id)
    assert replicas(ended(app_id))[0].signal == "SIGTERM"


def test_what_starts_itself_again_and_again_is_ended() -> None:
    app_id = submit(python(RESTARTS_ITSELF), grace_period=0.2)
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    assert ended(app_id).state is AppState.SUCCEEDED  # its first process has ended well
    assert_nothing_runs(app_id)


@pytest.mark.parametrize("how", ["yes & yes & yes & yes &", "setsid yes & setsid yes & setsid yes &"])
def test_endless_printer_is_ended_after_its_replica(how: str) -> None:
    done = run(sh(f"{how} exit 0"), grace_period=0.2)
    assert done.state is AppState.SUCCEEDED
    assert_nothing_runs(done.app_id)


def test_daemons_of_an_attempt_are_gone_before_the_next(tmp_path: Path) -> None:
    # as workers of torchrun do: each in a session of its own, left alone when their parent is killed
    script = f"""cd {tmp_path}
    [ -e again ] && {{ kill -0 $(cat pid) 2>/dev/null; echo alive=$?; exit 0; }}
    setsid sh -c 'trap "" TERM; echo $$$$ > pid; touch again; while :; do sleep 0.05; done' &
    while [ ! -e again ]; do sleep 0.01; done; kill -KILL $$$$"""
    others = sh("while [ ! -e done ]; do sleep 0.05; done", name="other")
    others.args[1] = f"cd {tmp_path}; setsid sleep 600 & echo $! > helper; " + others.args[1]
    app_id = submit(sh(script, retries=1, policy="REPLICA"), others, grace_period=0.3)
    wait_until(lambda: "alive" in text(app_id), "the second attempt has looked")
    assert "alive=1\n" in text(app_id)
    helper = processes.look_up(int((tmp_path / "helper").read_text()))
    assert helper is not None, "a daemon of a replica that runs is left alone"
    (tmp_path / "done").touch()
    assert ended(app_id).state is AppState.SUCCEEDED
    assert_nothing_runs(app_id)


def test_delete_of_a_running_job_by_two_at_once() -> None:
    app_id = submit(sh("sleep 600", 3))
    running(app_id, 3)
    errors: list[BaseException] = []

    def delete() -> None:
        try:
            scheduler().delete(app_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=delete) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert scheduler().describe(app_id) is None
    assert not paths(app_id).folder.exists()
    assert_nothing_runs(app_id)


def test_nested_job_is_its_own_and_ends_with_outer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    file = tmp_path / "inner"
    submit_inner = f"{sys.executable} -m torchx_cli run --detach utils.sh 'echo inner; sleep 600' > {file}"
    outer = submit(sh(f"{submit_inner}; echo ready; sleep 600"))
    wait_until(lambda: text(outer) == "ready\n", "the inner one was started")
    inner = file.read_text().strip().rsplit("/", 1)[-1]
    wait_until(lambda: text(inner) == "inner\n", "it prints to its own log")
    of_both = {p.pid for p in processes_of(inner)} & {p.pid for p in processes_of(outer)}
    assert of_both == set()
    scheduler().cancel(outer)
    assert ended(outer).state is AppState.CANCELLED
    assert ended(inner).state is AppState.CANCELLED
    assert_nothing_runs(inner)
    assert_nothing_runs(outer)


def test_end_of_unsupervised_outer_job_ends_inner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    file = tmp_path / "inner"
    submit_inner = f"{sys.executable} -m torchx_cli run --detach utils.sh 'echo inner; sleep 600' > {file}"
    outer = submit(sh(f"{submit_inner}; echo ready; sleep 600"))
    wait_until(lambda: text(outer) == "ready\n", "the inner one was started")
    inner = file.read_text().strip().rsplit("/", 1)[-1]
    running(inner)
    kill_supervision(outer)
    scheduler().reconcile(outer)
    assert describe(outer).state is AppState.FAILED
    assert ended(inner).state is AppState.CANCELLED
    assert_nothing_runs(inner)
    assert_nothing_runs(outer)
