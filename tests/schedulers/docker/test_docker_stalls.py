"""Stalls of containers: heartbeats through a mounted file, output, reports, and the requested actions."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from containers import Jobs, describe, ended, scheduler, sh, supervisor_of, text
from hooks import Hooks
from program import ROOT, torchx
from support import wait_until

from torchx.runner import get_runner
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.schedulers.shared.stalls import read_stalls
from torchx.scheduling.stalls import StallReport
from torchx.scheduling.streams import Streams
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount
from torchx.specs.status import AppState

pytestmark = pytest.mark.docker

PROGRAM = """
import os, signal, sys, threading
sys.path.insert(0, "/torchx")
from torchx.distributed import beat
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
def next_batch():
    threading.Event().wait()
if os.environ["TORCHX_ATTEMPT"] == "1":
    beat(step=4183)
    print("begun", flush=True)
    next_batch()
"""


def program(**fields: object) -> Role:
    """A Python program that beats once and hangs in its first attempt; it runs as a user of its own."""
    mount = BindMount(str(ROOT), "/torchx", read_only=True)
    return sh(
        "",
        entrypoint="python3",
        args=["-c", PROGRAM],
        mounts=[mount],
        env={"TORCHX_JOB_ID": "local_docker://torchx/of-a-test"},  # a runner sets it
        metadata={"local_docker": {"user": "65534"}},
        **fields,
    )


def test_a_stall_is_reported_and_the_application_continues(jobs: Jobs) -> None:
    app_id = jobs.submit(program(), stall="0.5s")
    wait_until(lambda: "(step 4,183)" in describe(app_id).msg, "the status shows the step")
    described = describe(app_id)
    assert described.state is AppState.RUNNING
    assert described.msg.startswith("stalled for ")
    assert described.stalls
    assert described.report_dir is not None
    folder = Path(described.report_dir)
    assert folder.stat().st_mode & 0o77 == 0
    wait_until((folder / "stacks.txt").exists, "the stacks")
    assert json.loads((folder / "stacks.json").read_text())["processes"]
    assert "all stacks, now: torchx stacks " in torchx("status", app_id).stdout
    events = [json.loads(line) for line in torchx("events", app_id, "-o", "json").stdout.splitlines()]
    stall = next(event for event in events if event["kind"] == "stalled")
    assert (stall["role"], stall["replica"]) == ("w", 0)
    assert stall["message"].startswith("no output ")
    assert torchx("wait", app_id, "--for", "stalled").returncode == 0
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED
    scheduler().delete(app_id)
    assert not folder.exists()


@pytest.mark.long
def test_output_is_progress(jobs: Jobs) -> None:
    role = sh("until [ -e /tmp/go ]; do sleep 0.05; done; while :; do echo line; sleep 0.05; done")
    app_id = jobs.submit(role, stall="5s")
    wait_until(lambda: describe(app_id).stalls, "it stalls")
    streams = Streams(sys.stdout.buffer, sys.stderr.buffer)
    assert scheduler().execute(app_id, "w", 0, ["touch", "/tmp/go"], streams) == 0
    wait_until(lambda: not describe(app_id).msg, "it continues")
    assert read_stalls(supervised_in(app_id).events).since is None


@pytest.mark.long
def test_another_supervisor_detects_the_stall_again(jobs: Jobs) -> None:
    app_id = jobs.submit(sh("sleep 600"), stall="0.3s")
    wait_until(lambda: describe(app_id).stalls, "it stalls")
    supervisor = supervisor_of(app_id)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: describe(app_id).needs_reconcile, "it has no supervisor")
    scheduler().reconcile(app_id)
    wait_until(lambda: len(describe(app_id).stalls) > 1, "it is reported again")
    assert '"e":"progress"' in supervised_in(app_id).events.read_text()


@pytest.mark.long
def test_only_matching_lines_count(jobs: Jobs) -> None:
    role = sh("echo loading; until [ -e /tmp/go ]; do echo other; sleep 0.05; done", 2)
    first = jobs.submit(role, stall="0.3s", progress="step")
    second = jobs.submit(
        sh("echo step 1; while :; do echo other; sleep 0.05; done"), stall="0.3s", progress="step"
    )
    wait_until(lambda: describe(second).stalls, "no line matches any more")
    assert not describe(first).stalls, "the clock begins with the first matching line"


@pytest.mark.long
def test_a_stalled_container_is_restarted_and_prints_its_stacks(jobs: Jobs) -> None:
    """TERM ends it orderly, which is a failure all the same."""
    app_id = jobs.submit(program(max_retries=1), stall="2s", on_stall="restart", progress="begun")
    done = ended(app_id, 120)
    assert done.state is AppState.SUCCEEDED, done
    attempts = done.roles_statuses[0].replicas[0].attempts
    assert [attempt.state for attempt in attempts] == [AppState.FAILED, AppState.SUCCEEDED]
    assert attempts[0].msg == "stalled for longer than its limit"
    assert "in next_batch" in text(app_id), "there is no py-spy in the image"


@pytest.mark.long
def test_program_that_exits_orderly_on_restart_has_failed(jobs: Jobs) -> None:
    done = jobs.run(sh("trap 'exit 0' TERM; while :; do sleep 0.05; done"), stall="0.3s", on_stall="restart")
    assert done.state is AppState.FAILED
    assert done.first_failure is not None
    assert (done.first_failure.signal, done.first_failure.msg) == (
        "SIGTERM",
        "stalled for longer than its limit",
    )


@pytest.mark.long
def test_a_stalled_application_is_cancelled(jobs: Jobs) -> None:
    done = jobs.run(sh("trap 'exit 0' TERM; sleep 600 & wait", 2), stall="0.3s", on_stall="cancel")
    assert done.state is AppState.CANCELLED
    assert done.msg.startswith("cancelled, as it was stalled for ")
    assert done.report_dir is not None
    assert Path(done.report_dir, "stacks.txt").exists(), "the stacks are taken before"


@pytest.mark.long
def test_a_cancelled_container_that_stalls_is_cancelled(jobs: Jobs) -> None:
    app_id = jobs.submit(
        sh("trap : TERM; while :; do sleep 0.05; done", max_retries=3),
        stall="0.3s",
        on_stall="restart",
        grace_period=600.0,
    )
    wait_until(lambda: describe(app_id).stalls, "it stalls")
    scheduler().cancel(app_id)
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED


@pytest.mark.long
def test_a_stall_is_notified(jobs: Jobs, hooks: Hooks) -> None:
    done = torchx(
        "run", "-d", "-s", "local_docker", "--stall", "0.3s", "--notify", hooks.url, "--notify-on", "stall",
        "utils.sh", "--image", sh("").image, "sleep 600",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    app_id = done.stdout.strip().rpartition("/")[2]
    jobs.ids.append(app_id)
    _, body = hooks.wait_for(1)[0]
    assert (body["event"], body["state"]) == ("stall", "RUNNING")
    assert "no output " in body["message"]


def test_without_stall_nothing_is_mounted() -> None:
    with get_runner() as runner:
        plain, watched = (
            runner.dryrun(AppDef("job", [sh("true")]), "local_docker", cfg).request.containers[0].body
            for cfg in ({}, {"stall": "10m"})
        )
    assert "Mounts" not in plain["HostConfig"]
    assert not [line for line in plain["Env"] if line.startswith("TORCHX_HEARTBEAT")]
    targets = [mount["Target"] for mount in watched["HostConfig"]["Mounts"]]
    assert targets == ["/run/torchx/heartbeats", "/run/torchx/steps"]
    assert "TORCHX_HEARTBEAT=0:/run/torchx/heartbeats" in watched["Env"]


def test_damaged_journals_are_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sound = {"t": 5.0, "e": "stalled", "msg": "no progress for 2 s", "since": 3.0, "step": 7, "rs": [1]}
    damaged = ["[]", "x", '{"e":"stalled"}', '{"e":"stalled","t":"x","msg":1,"since":[],"step":"a"}']
    path.write_text("\n".join([*damaged, json.dumps(sound), '{"e":"cancel"}', '{"e":"other"}']))
    path.chmod(0o600)
    history = read_stalls(path)
    assert history.reports == (StallReport(5.0, "no progress for 2 s", [1]),)
    assert (history.since, history.step, history.cancelled) == (3.0, 7, "")
