"""Stalls of real jobs: what is recorded, shown and done."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hooks import Hooks
from local import describe, ended, handle, paths, scheduler, sh, submit
from program import ROOT, torchx
from support import wait_until

from torchx.specs.app import Role
from torchx.specs.status import AppState

BEATS = """
import sys, threading
sys.path.insert(0, {root!r})
from torchx.distributed import beat
for step in range(4184):
    beat(step=step)
def next_batch():
    threading.Event().wait()
next_batch()
"""

SLOW = """
import sys, time
sys.path.insert(0, {root!r})
from torchx.distributed import beat
for step in range(100):
    beat(step)
    time.sleep(0.05)
"""


def test_a_stall_is_reported_and_the_job_continues(tmp_path: Path) -> None:
    go = tmp_path / "go"
    app_id = submit(sh(f"until [ -e {go} ]; do sleep 0.02; done; echo more; sleep 600"), stall="0.2s")
    waited = torchx("wait", app_id, "--for", "stalled")
    assert waited.returncode == 0, waited.stderr
    wait_until(lambda: describe(app_id).msg.startswith("stalled for "), "the status shows it")
    assert describe(app_id).state is AppState.RUNNING
    log_dir = describe(app_id).log_dir
    assert log_dir is not None
    stacks = Path(log_dir, "stacks.txt")
    wait_until(stacks.exists, "the stacks are in the folder of the logs")
    assert "w/0" in stacks.read_text()
    assert json.loads(stacks.with_suffix(".json").read_text())["processes"]
    assert (stacks.stat().st_mode | stacks.with_suffix(".json").stat().st_mode) & 0o77 == 0, "private"
    shown = torchx("status", app_id).stdout
    assert "  stalled for " in shown
    assert f"all stacks, now: torchx stacks {app_id}" in shown
    events = [json.loads(line) for line in torchx("events", app_id, "-o", "json").stdout.splitlines()]
    (stall,) = [event for event in events if event["kind"] == "stalled"]
    assert stall["message"].startswith("no output for ")
    assert (stall["role"], stall["replica"], stall["attempt"]) == ("w", 0, 1)
    go.touch()
    wait_until(lambda: '"e":"progress"' in paths(app_id).events.read_text(), "it continues")
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED


def test_heartbeats_name_the_step() -> None:
    code = BEATS.format(root=str(ROOT))
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", code])
    app_id = submit(role, stall="0.2s")
    wait_until(lambda: "(step 4,183)" in describe(app_id).msg, "the step is shown")
    log_dir = describe(app_id).log_dir
    assert log_dir is not None
    stacks = Path(log_dir, "stacks.txt")
    wait_until(lambda: stacks.exists() and "next_batch" in stacks.read_text(), "the stacks name the function")
    scheduler().kill(app_id)
    ended(app_id)
    assert not list(Path(log_dir).rglob("heartbeats"))


def test_stalled_replicas_are_restarted_as_failures() -> None:
    """TERM ends them orderly, which is a failure all the same; the stacks are taken before."""
    # on a busy machine, a start may take longer than the limit
    script = "trap 'exit 0' TERM; [ $TORCHX_ATTEMPT -ge 2 ] || while :; do sleep 0.05; done"
    app_id = submit(sh(script, retries=9), stall="0.5s", on_stall="restart")
    done = ended(app_id)
    assert done.state is AppState.SUCCEEDED
    assert done.num_restarts > 0
    first = done.roles_statuses[0].replicas[0].attempts[0]
    assert (first.state, first.signal) == (AppState.FAILED, "SIGTERM")
    assert first.msg.startswith("stalled for ")
    assert done.log_dir is not None
    stacks = json.loads(Path(done.log_dir, "stacks.json").read_text())
    assert stacks["processes"], "they are taken before anything is ended"


def test_a_stalled_job_is_cancelled() -> None:
    app_id = submit(sh("sleep 600", 2), stall="0.3s", on_stall="cancel")
    done = ended(app_id)
    assert done.state is AppState.CANCELLED
    assert done.msg.startswith("cancelled, as it was stalled for ")
    assert done.log_dir is not None
    stacks = json.loads(Path(done.log_dir, "stacks.json").read_text())
    assert stacks["processes"], "they are taken before anything is ended"


def test_healthy_jobs_are_left_alone() -> None:
    """One is silent for longer than its limit, the other one prints nothing, but beats."""
    silent = submit(sh("sleep 1.5; echo done"), stall="0.2s")
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", SLOW.format(root=str(ROOT))])
    beating = submit(role, stall="3s", on_stall="cancel")
    assert ended(silent).state is AppState.SUCCEEDED
    assert ended(beating).state is AppState.SUCCEEDED
    assert [e for e in paths(beating).events.read_text().splitlines() if '"e":"stalled"' in e] == []


def test_a_stall_is_notified(hooks: Hooks) -> None:
    done = torchx(
        "run", "-d", "-s", "local_cwd", "--stall", "0.2s", "--notify", hooks.url, "--notify-on", "stall",
        "utils.sh", "sleep 600",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    app_id = done.stdout.strip().rpartition("/")[2]
    _, body = hooks.wait_for(1)[0]
    assert (body["event"], body["state"]) == ("stall", "RUNNING")
    scheduler().kill(app_id)
    ended(app_id)


def test_flags_are_checked(tmp_path: Path) -> None:
    for arguments, message in (
        (["-s", "local_cwd", "--stall", "soon"], "--stall is `soon`, expected a duration such as"),
        (["-s", "local_cwd", "--on-stall", "cancel"], "--on-stall requires a stall limit"),
        (
            ["-s", "local_cwd", "--stall", "1m", "--progress-regex", "("],
            "--progress-regex is `(`, not a valid pattern",
        ),
        (["-s", "slurm", "--stall", "1m"], "--stall does not work with slurm, which does not detect stalls"),
        (["-s", "kubernetes", "--stall", "1m"], "--stall does not work with kubernetes, which does not"),
        (["-s", "local_docker", "--stall", "x"], "--stall is `x`, expected a duration such as"),
    ):
        done = torchx("run", "--dryrun", *arguments, "utils.echo")
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    config = tmp_path / ".torchxconfig"
    config.write_text("[local_cwd]\nstall = 10 minutes\non_stall = cancel\n")
    done = torchx("run", "-d", "-s", "local_cwd", "utils.echo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cfg = describe(done.stdout.strip().rpartition("/")[2]).cfg
    assert (cfg["stall"], cfg["on_stall"]) == ("10 minutes", "cancel")


def test_python_prints_its_stacks_when_a_signal_ends_it() -> None:
    code = "import os, signal\ndef crash(): os.kill(os.getpid(), signal.SIGABRT)\ncrash()"
    for env, found in (({}, True), ({"PYTHONFAULTHANDLER": ""}, False)):
        role = Role("w", image="", entrypoint=sys.executable, args=["-c", code], env=dict(env))
        done = ended(submit(role))
        assert ("in crash" in torchx("log", handle(done.app_id)).stdout) is found


HANGS = """
import os, resource, sys, threading
sys.path.insert(0, {root!r})
from torchx.distributed import beat
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
def next_batch():
    threading.Event().wait()
def peer():
    while True:
        threading.Event().wait(0.05)
        beat()
beat()
if os.environ["TORCHX_REPLICA"] == "w/0":
    print("attempt", os.environ["TORCHX_ATTEMPT"], flush=True)
    next_batch()
peer()
"""


def without_py_spy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a program on PATH that fails as py-spy does without permission."""
    program = folder / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'Permission denied' >&2; exit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("action", ["restart", "cancel"])
def test_without_py_spy_python_prints_its_own_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    without_py_spy(tmp_path, monkeypatch)
    code = HANGS.format(root=str(ROOT))
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", code], num_replicas=2)
    limit = "6s" if action == "restart" else "0.5s"  # the peer must not stall, even on a busy machine
    done = ended(submit(role, stall=limit, on_stall=action, progress="attempt"))
    log = torchx("log", handle(done.app_id)).stdout
    assert "Fatal Python error: Aborted" in log
    assert "in next_batch" in log
    stalled, peer = (replica.attempts[0] for replica in done.roles_statuses[0].replicas)
    if action == "cancel":
        assert done.state is AppState.CANCELLED
        assert done.first_failure is None
    else:
        assert done.first_failure is not None
        assert (done.first_failure.replica, done.state) == (0, AppState.FAILED)
        assert stalled.msg.startswith("stalled for ")
        assert peer.state is AppState.CANCELLED
        assert "in peer" not in log, "a healthy replica is not aborted"


def test_a_report_aborts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_py_spy(tmp_path, monkeypatch)
    code = HANGS.format(root=str(ROOT))
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", code])
    app_id = submit(role, stall="0.5s", progress="attempt")
    log_dir = describe(app_id).log_dir
    assert log_dir is not None
    wait_until(Path(log_dir, "stacks.txt").exists, "the report")
    wait_until(lambda: describe(app_id).msg.startswith("stalled for "), "the status shows it")
    scheduler().kill(app_id)
    done = ended(app_id)
    assert done.roles_statuses[0].replicas[0].attempts[0].signal in ("SIGTERM", "SIGKILL")
    assert "Aborted" not in torchx("log", handle(app_id)).stdout
