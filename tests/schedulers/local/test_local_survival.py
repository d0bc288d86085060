"""What local jobs survive, with real processes: kills, cancels, left-over processes, damaged files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from local import (
    assert_nothing_runs,
    describe,
    ended,
    handle,
    kill_supervision,
    paths,
    processes_of,
    replicas,
    run,
    running,
    scheduler,
    sh,
    submit,
    supervision_of,
    text,
)
from support import wait_until

from torchx.machine import locks as lock
from torchx.machine import processes
from torchx.runner import get_runner
from torchx.specs.status import AppState
from torchx.testing.changes import recorded_changes

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
"""Ignores TERM. Its sleeps do not, so it goes on until it is killed."""


def test_cancel_ends_a_job_and_says_so() -> None:
    app_id = submit(sh("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done", 2))
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    scheduler().cancel(app_id)
    done = ended(app_id)
    assert done.state is AppState.CANCELLED
    assert text(app_id).count("bye") == 2
    assert_nothing_runs(app_id)
    scheduler().cancel(app_id)  # once more: nothing happens
    assert describe(app_id).state is AppState.CANCELLED


def test_what_ignores_term_is_killed_after_the_grace_period() -> None:
    app_id = submit(sh(STUBBORN, 3), grace_period=0.3)
    wait_until(lambda: text(app_id).count("ready") == 3, "all are ready")
    scheduler().cancel(app_id)
    done = ended(app_id)
    assert {r.signal for r in replicas(done)} == {"SIGKILL"}
    assert_nothing_runs(app_id)


def test_kill_does_not_wait_for_the_grace_period() -> None:
    app_id = submit(sh(STUBBORN), grace_period=600.0)
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    scheduler().cancel(app_id)
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_a_stopped_replica_can_be_cancelled() -> None:
    app_id = submit(sh("echo ready; exec sleep 600"))
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    pid = replicas(describe(app_id))[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    scheduler().cancel(app_id)
    assert replicas(ended(app_id))[0].signal == "SIGTERM"


def test_grandchildren_and_daemons_end_with_the_job() -> None:
    daemon = (
        "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(600)"
    )
    script = f"(trap '' TERM; sleep 600) & {sys.executable} -c '{daemon}'; echo ready; wait"
    app_id = submit(sh(script), grace_period=0.3)
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    wait_until(lambda: len(processes_of(app_id)) >= 3, "shell, its deaf sleep and the daemon run")
    scheduler().cancel(app_id)
    ended(app_id)
    assert_nothing_runs(app_id)


def test_what_a_replica_leaves_behind_ends_with_it() -> None:
    done = run(sh("sleep 600 & (setsid sleep 601 &) ; echo ok; exit 0"), grace_period=0.3)
    assert done.state is AppState.SUCCEEDED
    assert text(done.app_id) == "ok\n"
    assert_nothing_runs(done.app_id)


def test_left_overs_of_attempt_are_gone_before_next(tmp_path: Path) -> None:
    script = f"""cd {tmp_path}
    [ -e again ] && {{ kill -0 $(cat pid) 2>/dev/null; echo alive=$?; exit 0; }}
    touch again; sleep 600 & echo $! > pid; exit 1"""
    done = run(sh(script, retries=1, policy="REPLICA"))
    assert done.state is AppState.SUCCEEDED
    assert text(done.app_id) == "alive=1\n"


def test_kill_9_of_submitting_process_leaves_job_running() -> None:
    code = (
        "import sys, time; sys.path.insert(0, 'tests'); from local import submit, sh;"
        "print(submit(sh('echo ready; sleep 600')), flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as cli:
        assert cli.stdout is not None
        app_id = cli.stdout.readline().strip()
        running(app_id)
        cli.kill()
    assert describe(app_id).state is AppState.RUNNING
    wait_until(lambda: text(app_id) == "ready\n", "its log can be read")
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_kill_9_of_a_supervisor_is_cleaned_up() -> None:
    app_id = submit(sh("echo ready; sleep 600 & wait", 2))
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    processes.send(supervision_of(app_id)[0], signal.SIGKILL)
    done = ended(app_id)
    assert (done.state, done.msg) == (AppState.FAILED, "its supervisor was killed")
    assert text(app_id).count("ready") == 2
    assert_nothing_runs(app_id)
    (listed,) = scheduler().list()
    assert (listed.state, listed.msg) == (AppState.FAILED, "its supervisor was killed")


def test_two_who_find_a_dead_supervisor_at_once_agree() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    kill_supervision(app_id)
    threads = [threading.Thread(target=lambda: scheduler().reconcile(app_id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = describe(app_id)
    assert (done.state, done.needs_reconcile) == (AppState.FAILED, False)
    ends = paths(app_id).events.read_text().count('"e":"end"')
    assert ends == 1


def test_queries_show_end_without_supervisor_and_change_nothing() -> None:
    app_id = submit(sh("sleep 600", 2))
    running(app_id, 2)
    left = processes_of(app_id)
    kill_supervision(app_id)
    with recorded_changes() as changes:
        shown = describe(app_id)
        (line,) = scheduler().list()
        assert text(app_id) == ""
    assert changes == []
    assert (shown.state, shown.msg) == (AppState.FAILED, "its supervisor was killed")
    assert (line.state, line.needs_reconcile, shown.needs_reconcile) == (AppState.FAILED, True, True)
    assert all(processes.is_alive(process) for process in left)
    with get_runner() as runner:
        status = runner.status(handle(app_id))
    assert status is not None
    assert (status.state, status.msg) == (shown.state, shown.msg)
    assert_nothing_runs(app_id)
    assert not describe(app_id).needs_reconcile


def test_listing_by_runner_finalizes_jobs_without_supervisor() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    kill_supervision(app_id)
    with get_runner() as runner:
        assert [app.state for app in runner.list("local_cwd")] == [AppState.FAILED]
    assert_nothing_runs(app_id)
    assert paths(app_id).events.read_text().count('"e":"end"') == 1
    with recorded_changes() as changes, get_runner() as runner:
        assert [app.state for app in runner.list("local_cwd")] == [AppState.FAILED]
    assert changes == []


def test_pid_that_is_someone_elses_now_is_left_alone() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    replica = replicas(describe(app_id))[0].pid
    kill_supervision(app_id)
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    wait_until(
        lambda: time.clock_gettime(time.CLOCK_BOOTTIME) > started + 0.02, "the clock of processes ticks"
    )
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            # as if the replica had ended unseen and its pid had been used again
            events = paths(app_id).events
            events.write_text(events.read_text().replace(f'"pid":{replica},', f'"pid":{stranger.pid},'))
            assert ended(app_id).state is AppState.FAILED
            assert stranger.poll() is None
            assert_nothing_runs(app_id)
        finally:
            stranger.kill()


def test_after_a_restart_of_the_machine_nothing_is_signalled() -> None:
    app_id = submit(sh("echo ready; exec sleep 600"))
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    events = paths(app_id).events
    left = processes_of(app_id)
    kill_supervision(app_id)
    events.write_text(events.read_text().replace(processes.boot_id(), "another-start"))
    try:
        done = ended(app_id)
        assert (done.state, done.msg) == (AppState.FAILED, "the machine was restarted while it ran")
        assert all(processes.is_alive(process) for process in left)
    finally:
        for process in left:
            processes.send(process, signal.SIGKILL)


def test_two_cancels_at_once() -> None:
    app_id = submit(sh("sleep 600", 4))
    running(app_id, 4)
    threads = [threading.Thread(target=lambda: scheduler().cancel(app_id)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended(app_id).state is AppState.CANCELLED
    assert paths(app_id).events.read_text().count('"e":"cancel"') == 1


def test_cancel_during_the_start() -> None:
    app_id = submit(sh("sleep 600", 300))
    scheduler().cancel(app_id)
    done = ended(app_id)
    assert done.state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_a_supervisor_that_gets_a_signal_cancels_its_job() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    processes.send(supervision_of(app_id)[0], signal.SIGTERM)
    done = ended(app_id)
    assert done.state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_the_lock_is_free_when_the_job_has_ended() -> None:
    app_id = submit(sh("sleep 0.1"))
    assert lock.is_held(paths(app_id).lock)
    ended(app_id)
    assert not lock.is_held(paths(app_id).lock)
