"""What a killed supervisor leaves: starts of which no pid is on record, and daemons that nothing names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from local import (
    assert_nothing_runs,
    describe,
    ended,
    kill_supervision,
    paths,
    replicas,
    running,
    scheduler,
    sh,
    submit,
    supervision_of,
    text,
    with_daemon,
)
from support import wait_until

from torchx.jobs.events import read_events
from torchx.machine import locks as lock
from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.specs.status import AppState


def test_daemon_that_nothing_names_ends_with_supervisor_and_guard(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    app_id, daemon = with_daemon(tmp_path / "one")
    other, spared = with_daemon(tmp_path / "other")
    kill_supervision(app_id)
    assert processes.is_alive(daemon)
    scheduler().reconcile(app_id)
    assert describe(app_id).state is AppState.FAILED
    assert not processes.is_alive(daemon)
    assert processes.is_alive(spared), "it is of another job"
    scheduler().kill(other)
    assert ended(other).state is AppState.CANCELLED


def forget(app_id: str, event: str) -> None:
    """Removes events of one kind, as if the supervisor had been killed before it wrote them."""
    events = paths(app_id).events
    kept = [each for each in read_events(events) if each["e"] != event]
    events.write_text("".join(json.dumps(each) + "\n" for each in kept))


def test_replica_without_recorded_pid_is_found_and_reported() -> None:
    app_id = submit(sh("echo ready; sleep 600", 2), grace_period=0.3)
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    pids = [replica.pid for replica in replicas(describe(app_id))]
    kill_supervision(app_id)
    forget(app_id, "start")
    shown = describe(app_id)
    scheduler().reconcile(app_id)
    done = describe(app_id)
    assert (shown.state, shown.msg, shown.first_failure) == (done.state, done.msg, done.first_failure)
    assert (done.state, done.msg) == (AppState.FAILED, "its supervisor was killed")
    assert [[a.pid for a in r.attempts] for r in replicas(done)] == [[pid] for pid in pids]
    assert done.first_failure is not None
    assert (done.first_failure.replica, done.first_failure.attempt) == (0, 1)
    assert_nothing_runs(app_id)
    assert describe(app_id) == done


def test_announced_start_without_a_process_is_reported() -> None:
    app_id = submit(sh("echo ready; exec sleep 600"), grace_period=0.3)
    wait_until(lambda: text(app_id) == "ready\n", "it is ready")
    pid = replicas(describe(app_id))[0].pid
    assert pid is not None
    kill_supervision(app_id)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: processes.look_up(pid) is None, "it has ended")
    forget(app_id, "start")
    (replica,) = replicas(describe(app_id))
    (attempt,) = replica.attempts
    assert (attempt.number, attempt.state, attempt.pid) == (1, AppState.FAILED, None)
    assert attempt.msg.endswith("during this start: it is not known whether the replica ran")


def test_start_is_on_record_before_there_is_process(tmp_path: Path) -> None:
    """A replica reads the events of its own job: its start is announced whenever it does."""
    app_id = submit(sh('cat "$TORCHX_HOME/jobs/${app_id}/events.jsonl"', 1))
    ended(app_id)
    reported = [json.loads(line) for line in text(app_id).splitlines()]
    assert {"e": "starting", "r": 0, "a": 1}.items() <= reported[1].items()


@pytest.mark.parametrize("older", [0, 1], ids=["younger", "older"])
def test_no_process_is_signalled_by_its_pid_alone(older: int) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            entry = processes.look_up(child.pid)
            assert entry is not None
            wrong = Process(child.pid, entry.process.start + (-1 if older else 1))
            assert not processes.send(wrong, signal.SIGKILL)
            assert not processes.is_alive(wrong)
            assert processes.wait_end(wrong, 0)
            assert child.poll() is None
            assert processes.send(entry.process, signal.SIGKILL)
            assert child.wait(120) == -signal.SIGKILL
        finally:
            child.kill()


def test_recorded_supervisor_is_signalled_only_if_it_matches() -> None:
    app_id = submit(sh("sleep 600"))
    running(app_id)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        try:
            events = paths(app_id).events
            reported = [json.loads(line) for line in events.read_text().splitlines()]
            own = [dict(each) for each in reported]
            for each in reported:
                if each["e"] == "supervisor":  # the pid of a stranger, and a start that is not the stranger's
                    each.update(pid=stranger.pid, guard=[stranger.pid, each["start"] - 1])
            events.write_text("".join(json.dumps(each) + "\n" for each in reported))
            scheduler().cancel(app_id)
            assert stranger.poll() is None
            events.write_text("".join(json.dumps(each) + "\n" for each in own))
            scheduler().cancel(app_id)
            assert lock.wait_free(paths(app_id).lock, 120)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_stopped_replica_has_not_ended(tmp_path: Path) -> None:
    wait = "while [ ! -e {0}/{1} ]; do sleep 0.02; done; echo seen {1}; "
    other = "echo ready; " + "".join(wait.format(tmp_path, number) for number in (1, 2)) + "sleep 600"
    app_id = submit(sh("echo ready; exec sleep 600", name="stopped", retries=1), sh(other, name="other"))
    wait_until(lambda: text(app_id).count("ready") == 2, "both are ready")
    pid = replicas(describe(app_id))[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: " T " in Path(f"/proc/{pid}/stat").read_text(), "it is stopped")
    for number in (1, 2):  # twice: between the two its supervisor has looked for ends
        (tmp_path / str(number)).touch()
        wait_until(lambda number=number: f"seen {number}" in text(app_id), "its supervisor was at work")
    kinds = [each["e"] for each in read_events(paths(app_id).events)]
    assert kinds == ["supervisor", "starting", "start", "starting", "start"]
    assert describe(app_id).state is AppState.RUNNING
    scheduler().kill(app_id)
    assert ended(app_id).state is AppState.CANCELLED


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_all_is_private_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    logs = tmp_path / "logs" / "deep"
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    before = os.umask(umask)
    try:
        app_id = submit(
            sh("umask; mkdir made; echo x; exit 1", retries=1, policy="REPLICA"), log_dir=str(logs)
        )
        done = ended(app_id)
    finally:
        os.umask(before)
    assert done.state is AppState.FAILED
    assert text(app_id).splitlines()[0] == f"{umask:04o}", "the replica has the umask of the caller"
    home = Path(os.environ["TORCHX_HOME"])
    made = [home, *home.rglob("*"), logs.parent, logs, *logs.rglob("*")]
    assert any("attempt-1" in str(path) for path in made)
    assert any(path.name == "SUCCESS" for path in made)
    wrong = {
        str(path): oct(path.stat().st_mode)
        for path in made
        if path.stat().st_mode & 0o777 != (0o700 if path.is_dir() else 0o600)
    }
    assert not wrong


def test_running_job_with_damaged_record_ends_when_deleted(tmp_path: Path) -> None:
    app_id, daemon = with_daemon(tmp_path)
    supervisor = supervision_of(app_id)
    paths(app_id).record.write_text("{")
    (line,) = scheduler().list()
    assert (line.state, line.ended_at) == (AppState.UNKNOWN, None)
    scheduler().delete(app_id)
    assert list(scheduler().list()) == []
    assert not processes.is_alive(daemon)
    assert not any(processes.is_alive(each) for each in supervisor)
    assert_nothing_runs(app_id)
