"""Time limits of real local jobs: the notice, the end, the next run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local import describe, ended, handle, paths, scheduler, sh, submit
from program import answer, torchx
from support import wait_until

from torchx.schedulers.shared.notice import NOTICE_SCRIPT
from torchx.specs.status import AppState

SAVES = """
n=$(cat "$TORCHX_CHECKPOINT_DIR/n" 2> /dev/null || echo 0)
echo "run $TORCHX_RUN from $n"
[ $n -ge 2 ] && exit 0
trap 'echo $((n + 1)) > "$TORCHX_CHECKPOINT_DIR/n"; echo saved; exit 75' USR1
while :; do sleep 0.05; done
"""


def test_limit_ends_job_and_is_named_cause() -> None:
    app_id = submit(
        sh("exec 2> /dev/null; trap '' TERM; while :; do sleep 0.05; done", 2),
        time_limit="0.3s",
        grace_period=0.2,
    )
    done = ended(app_id)
    assert (done.state, done.msg) == (AppState.FAILED, "time limit reached: 0.3s")
    last = [replica.attempts[-1] for replica in done.roles_statuses[0].replicas]
    assert [(attempt.state, attempt.msg) for attempt in last] == [(AppState.CANCELLED, "time limit")] * 2
    shown = json.loads(torchx("why", handle(app_id), "-o", "json").stdout)
    assert shown["cause"]["class"] == "time_limit"
    for command in ("status", "describe"):
        assert torchx(command, handle(app_id)).stdout.count("time limit reached") == 1
    waited = torchx("wait", handle(app_id))
    assert waited.returncode == 124
    assert "time limit reached: 0.3s" in torchx("log", handle(app_id)).stderr, "it has no output"
    assert torchx("log", "--regex", "x", handle(app_id)).stderr == ""


def test_a_job_that_ends_in_time_has_succeeded() -> None:
    done = ended(submit(sh("echo $TORCHX_RUN $TORCHX_ENDS_AT ${TORCHX_NOTICE-none}"), time_limit="1h"))
    assert (done.state, done.run) == (AppState.SUCCEEDED, 1)
    run, ends_at, notice = torchx("log", handle(done.app_id)).stdout.split()[-3:]
    assert (run, notice) == ("1", "none")
    assert done.started_at is not None
    assert abs(int(ends_at) - done.started_at.timestamp() - 3600) < 60


def test_next_run_continues_from_checkpoint_without_losing_lines() -> None:
    cfg = {"time_limit": "1h", "notice": "3599.8s", "requeue_on": "time-limit:5"}
    app_id = submit(sh(SAVES), **cfg)
    done = ended(app_id)
    assert (done.state, done.run, done.num_restarts) == (AppState.SUCCEEDED, 3, 2)
    log = torchx("log", handle(app_id)).stdout.splitlines()
    expected = ["run 1 from 0", "saved", "run 2 from 1", "saved", "run 3 from 2"]
    assert [line.endswith(text) for line, text in zip(log, expected, strict=True)] == [True] * 5, log
    events = [json.loads(line) for line in torchx("events", handle(app_id), "-o", "json").stdout.splitlines()]
    kinds = [event["kind"] for event in events]
    assert (kinds.count("notice"), kinds.count("requeued")) == (2, 2)
    (first, second) = [event for event in events if event["kind"] == "requeued"]
    assert (first["message"], second["details"]["run"]) == ("run 2 begins after the time limit", 3)
    assert f"{app_id}  SUCCEEDED" in (shown := torchx("status", handle(app_id)).stdout)
    assert "run 3" in shown
    assert json.loads(torchx("status", handle(app_id), "-o", "json").stdout)["run"] == 3
    folder = paths(app_id).checkpoints
    assert folder.stat().st_mode & 0o77 == 0, "private"


def test_used_requeues_are_named() -> None:
    cfg = {"time_limit": "0.2s", "requeue_on": "time-limit:1", "grace_period": 5.0}
    done = ended(submit(sh("trap 'exit 0' TERM; while :; do sleep 0.05; done", retries=9), **cfg))
    assert (done.state, done.run) == (AppState.FAILED, 2)
    assert done.msg == "time limit reached: 0.2s; all requeues are used (1)"


def test_requeue_is_printed_before_output_of_next_run() -> None:
    script = "echo of run $TORCHX_RUN; test $TORCHX_RUN = 3 || exec sleep 600"
    flags = ["-s", "local_cwd", "--time-limit", "1s", "--requeue", "time-limit"]
    done = torchx("run", *flags, "utils.sh", script)
    lines = [line.rpartition("│ ")[2] for line in done.stderr.splitlines()]
    assert lines[:5] == [
        "of run 1",
        "requeued: run 2 begins after the time limit",
        "of run 2",
        "requeued: run 3 begins after the time limit",
        "of run 3",
    ], done.stderr


def test_notice_reaches_program_below_shell_and_no_other(tmp_path: Path) -> None:
    """A shell without a trap would end; a child of the program belongs to it."""
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1] + str(os.getpid()), 'w').close())\n"
        "child = os.fork()\n"
        "open(sys.argv[1] + '.ready', 'w').close()\n"
        "while True: time.sleep(0.05)\n"
    )
    role = sh(f'{sys.executable} -c "$CODE" {tmp_path}/got; echo unreachable', 1)
    role.env["CODE"] = code
    app_id = submit(role, time_limit="1h", notice="3595s")
    wait_until((tmp_path / "got.ready").exists, "the program runs")
    wait_until(lambda: list(tmp_path.glob("got[0-9]*")), "the notice arrives")
    assert len(list(tmp_path.glob("got[0-9]*"))) == 1
    assert describe(app_id).state is AppState.RUNNING
    events = torchx("events", handle(app_id)).stdout
    assert "59m55s before the time limit; SIGUSR1 sent to 1 process" in events
    scheduler().kill(app_id)
    ended(app_id)


def test_a_given_folder_is_used_by_several_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "checkpoints"
    for _ in range(2):
        done = ended(submit(sh('echo x >> "$TORCHX_CHECKPOINT_DIR/all"'), checkpoint_dir=str(folder)))
        assert done.state is AppState.SUCCEEDED
    assert (folder / "all").read_text() == "x\nx\n"
    assert folder.stat().st_mode & 0o77 == 0


def test_job_does_not_inherit_limit_of_its_submitter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TORCHX_ENDS_AT", "TORCHX_NOTICE", "TORCHX_RUN"):
        monkeypatch.setenv(name, "7")
    done = ended(submit(sh("echo [$TORCHX_ENDS_AT$TORCHX_NOTICE$TORCHX_RUN]")))
    assert "[1]" in torchx("log", handle(done.app_id)).stdout


def test_flags_are_checked_and_may_be_configured(tmp_path: Path) -> None:
    for arguments, message in (
        (["--time-limit", "soon"], "--time-limit is `soon`, expected a duration such as 24h"),
        (["--warn-before", "5m"], "--warn-before requires a time limit"),
        (["--requeue", "sometimes"], "--requeue is `sometimes`, expected a list such as"),
    ):
        done = torchx("run", "--dryrun", "-s", "local_cwd", *arguments, "utils.echo")
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    done = torchx("run", "--dryrun", "-s", "local_cwd", "--requeue", "node", "utils.echo")
    assert "note: no requeue after `node`: local_cwd reports no such end" in done.stderr
    config = tmp_path / ".torchxconfig"
    config.write_text("[local_cwd]\ntime_limit = 90 minutes\nnotice = 5m:USR2\nrequeue_on = time-limit\n")
    done = torchx("run", "-d", "-s", "local_cwd", "utils.echo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cfg = describe(done.stdout.strip().rpartition("/")[2]).cfg
    assert (cfg["time_limit"], cfg["notice"], cfg["requeue_on"]) == ("90 minutes", "5m:USR2", "time-limit")


LATE = """
(trap 'echo first; exit' USR1; while :; do sleep 0.05; done) &
(while [ ! -e "$GO" ]; do sleep 0.05; done; trap 'echo second; exit' USR1; while :; do sleep 0.05; done) &
wait
"""
"""Two processes of one replica, of which the second handles the signal later."""
CHILD_FIRST = """
(trap 'echo first; exit' USR1; while :; do sleep 0.05; done) &
while [ ! -e "$GO" ]; do wait; done; trap 'echo second; exit' USR1; while :; do sleep 0.05; done
"""
"""A shell that handles the signal later than its child."""


@pytest.mark.parametrize("program", [LATE, CHILD_FIRST], ids=["two children", "a child first"])
def test_each_process_is_notified_when_it_handles_the_signal(tmp_path: Path, program: str) -> None:
    go = tmp_path / "go"
    app_id = submit(sh(f"GO={go}; {program.strip()}"), time_limit="1h", notice="3599.8s")
    wait_until(lambda: "first" in torchx("log", handle(app_id)).stdout, "the first process is notified")
    go.touch()
    done = ended(app_id)
    assert done.state is AppState.SUCCEEDED
    assert torchx("log", handle(app_id)).stdout.count("second") == 1


@pytest.mark.parametrize("text", [LATE, CHILD_FIRST], ids=["two children", "a child first"])
def test_the_script_of_nodes_and_containers_does_the_same(tmp_path: Path, text: str) -> None:
    go, out, script = tmp_path / "go", tmp_path / "out", tmp_path / "notice.sh"
    script.write_text(NOTICE_SCRIPT)
    env = {**os.environ, "GO": str(go)}
    with out.open("w") as file, subprocess.Popen(["sh", "-c", text], stdout=file, env=env) as program:
        argv = ["sh", script, "USR1", str(signal.SIGUSR1.value), str(program.pid), "600"]
        with subprocess.Popen(argv) as sender:
            wait_until(lambda: out.read_text() == "first\n", "the first process is notified")
            go.touch()
            assert program.wait(120) == 0
            assert sender.wait(120) == 0
    assert out.read_text() == "first\nsecond\n"


def test_a_time_limit_ends_with_exit_code_124() -> None:
    limit = ["-cfg", "time_limit=0.3s"]
    assert torchx("run", *limit, "utils.sh", "exec sleep 60").returncode == 124
    assert torchx("wait", "@last").returncode == 124
    assert torchx("attach", "@last").returncode == 124
    assert json.loads(torchx("wait", "@last", "-o", "json").stdout)[0]["exit_code"] == 124
    assert answer("list", "-o", "json")[0]["exit_code"] == 124
    assert torchx("run", "--each", "x=1", *limit, "utils.sh", "sleep 60; echo {x}").returncode == 124
    assert answer("results", "@last", "-o", "json")[0]["exit_code"] == 124
