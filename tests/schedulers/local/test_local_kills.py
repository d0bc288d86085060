"""What is killed from outside: the command line, a replica, the supervisor, its guard, or all of these."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    handle,
    kill_supervision,
    paths,
    processes_of,
    replicas,
    running,
    scheduler,
    sh,
    submit,
    supervision_of,
    text,
    with_daemon,
)
from program import COMMAND, environment, start
from support import wait_until

from torchx.machine import processes
from torchx.specs.app import AppDef
from torchx.specs.status import AppState

SCRIPT = "echo ready; sleep 600"


def started(process: subprocess.Popen[str]) -> str:
    """The id of the job that a command line has started, once it is ready."""
    assert process.stdout is not None
    app_id = process.stdout.readline().strip().rsplit("/", 1)[-1]
    wait_until(lambda: "ready" in text(app_id), "it is ready")
    return app_id


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_attached_command_line_that_is_killed_leaves_job_running(number: signal.Signals) -> None:
    with start("run", "-s", "local_cwd", "utils.sh", SCRIPT) as cli:
        app_id = started(cli)
        cli.send_signal(number)
        assert cli.wait(120) == -number
    assert describe(app_id).state is AppState.RUNNING
    assert text(app_id) == "ready\n"
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_a_terminal_that_is_closed_leaves_the_job_running() -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, [*COMMAND, "run", "utils.sh", SCRIPT], environment())
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 4096)
    app_id = shown.split(b"\r\n")[0].decode().rsplit("/", 1)[-1]
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGHUP
    assert describe(app_id).state is AppState.RUNNING
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_kill_9_of_a_replica_is_reported() -> None:
    app_id = submit(sh("sleep 600 & echo ready; wait", 2))
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    pid = replicas(describe(app_id))[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    done = ended(app_id)
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.replica, done.first_failure.signal) == (1, "SIGKILL")
    assert_nothing_runs(app_id)


def test_kill_9_of_supervisor_ends_job_without_query(tmp_path: Path) -> None:
    app_id, daemon = with_daemon(tmp_path, "trap '' TERM; while :; do sleep 0.05; done")
    processes.send(supervision_of(app_id)[0], signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(daemon), "what nothing marks as the job's has ended")
    assert scheduler().wait(app_id, 120)
    assert '"e":"end"' in paths(app_id).events.read_text()
    done = describe(app_id)
    assert (done.state, done.msg) == (AppState.FAILED, "its supervisor was killed")
    why = "its supervisor was killed: its exit code is unknown, and its last output may be missing"
    assert replicas(done)[0].attempts[0].msg == why
    assert text(app_id) == "ready\n"
    assert_nothing_runs(app_id)


def test_kill_9_of_the_guard_changes_nothing(tmp_path: Path) -> None:
    app_id, daemon = with_daemon(tmp_path)
    processes.send(supervision_of(app_id)[1], signal.SIGKILL)
    assert describe(app_id).state is AppState.RUNNING
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert not processes.is_alive(daemon)
    assert_nothing_runs(app_id)


def test_kill_9_of_supervisor_and_guard_is_found_later() -> None:
    app_id = submit(sh("(setsid sleep 601 &); sleep 600 & echo ready; wait", 2))
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    kill_supervision(app_id)
    assert processes_of(app_id)
    scheduler().reconcile(app_id)
    done = describe(app_id)
    assert (done.state, done.msg) == (AppState.FAILED, "its supervisor was killed")
    assert_nothing_runs(app_id)


def test_failure_before_supervisor_was_killed_is_first() -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    app_id = submit(sh(f"[ ${{replica_id}} = 1 ] && exit 7; {stubborn}", 2), grace_period=0.3)
    wait_until(lambda: '"code":7' in paths(app_id).events.read_text(), "the failure is on record")
    processes.send(supervision_of(app_id)[0], signal.SIGKILL)
    done = ended(app_id)
    assert done.first_failure is not None
    assert (done.first_failure.replica, done.first_failure.exit_code) == (1, 7)


def test_whoever_asks_the_guard_to_end_means_the_job() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    processes.send(supervision_of(app_id)[1], signal.SIGTERM)
    assert ended(app_id).state is AppState.CANCELLED
    assert_nothing_runs(app_id)


@pytest.mark.parametrize("which", [0, 1])
def test_a_stopped_supervisor_or_guard_blocks_no_command(which: int) -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    processes.send(supervision_of(app_id)[which], signal.SIGSTOP)
    assert describe(app_id).state is AppState.RUNNING
    scheduler().cancel(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    assert_nothing_runs(app_id)


def test_nothing_is_left_to_whoever_submits() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    ended(submit(sh("true")))
    assert children.read_text() == before, "a process has to be reaped"


def test_older_process_that_claims_the_job_is_spared() -> None:
    info = scheduler().submit_dryrun(AppDef("job", [sh("echo ready; sleep 600")]), {})
    app_id = info.request.app_id
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "TORCHX_JOB_ID": handle(app_id)}) as stranger:
        try:
            scheduler().schedule(info)
            wait_until(lambda: text(app_id) == "ready\n", "it is ready")
            kill_supervision(app_id)
            scheduler().reconcile(app_id)
            assert describe(app_id).state is AppState.FAILED
            assert stranger.poll() is None
            assert [process.pid for process in processes_of(app_id)] == [stranger.pid]
        finally:
            stranger.kill()


def test_a_success_outlives_the_supervisor() -> None:
    app_id = submit(sh("trap '' TERM; sleep 602 & echo done"), grace_period=5.0)
    wait_until(lambda: '"over":' in paths(app_id).events.read_text(), "the result is on record")
    processes.send(supervision_of(app_id)[0], signal.SIGKILL)
    done = ended(app_id)
    assert (done.state, done.msg, done.first_failure) == (AppState.SUCCEEDED, "", None)
    assert_nothing_runs(app_id)
