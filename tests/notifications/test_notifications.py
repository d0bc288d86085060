"""Notifications of local jobs: sent once, after the end, whatever happens to processes and the network."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hooks import Hooks, hooks_at
from local import sh
from support import wait_until

from torchx.jobs.paths import Home, JobPaths, state_home
from torchx.jobs.view import load
from torchx.machine import locks
from torchx.notifications import launch
from torchx.notifications.plan import Notify
from torchx.notifications.store import Delivery, Store
from torchx.runner import Runner, get_runner
from torchx.specs import AppDef
from torchx.specs.app import Role
from torchx_cli.main import main


@pytest.fixture
def runner() -> Iterator[Runner]:
    with get_runner("torchx") as runner:
        yield runner


def submit(runner: Runner, role: Role, *targets: str, on: tuple[str, ...] = ("end",)) -> str:
    """Submits a job with notifications, and returns its handle."""
    info = runner.dryrun(AppDef("job", [role]), "local_cwd", {"grace_period": 5.0})
    info.notify = Notify(targets, on)
    return runner.schedule(info)


def paths_of(handle: str) -> JobPaths:
    return Home(state_home()).job(handle.rpartition("/")[2])


def only(runner: Runner, handle: str) -> Delivery:
    (each,) = runner.notifications(handle)
    return each


def until(runner: Runner, handle: str, state: str) -> Delivery:
    return wait_until(
        lambda: next((d for d in runner.notifications(handle) if d.state == state), None), state
    )


def senders(handle: str) -> list[int]:
    """Returns the pids of the senders of a job's notifications."""
    folder, found = os.fsencode(paths_of(handle).folder), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if folder in arguments and any(b"torchx.notifications" in each for each in arguments):
                found.append(int(entry.name))
    return found


def kill_in_a_pause(runner: Runner, handle: str) -> None:
    """Kills the sender of a job between two tries."""
    wait_until(lambda: only(runner, handle).tries, "a try")
    (sender,) = wait_until(lambda: senders(handle), "the sender")

    def stopped_in_a_pause() -> bool:
        os.kill(sender, signal.SIGSTOP)
        wait_until(lambda: look_up_state(sender) == "T", "the stop")
        if only(runner, handle).message == "connection refused":
            return True
        os.kill(sender, signal.SIGCONT)
        return False

    wait_until(stopped_in_a_pause, "a pause")
    os.kill(sender, signal.SIGKILL)


def look_up_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def refusing() -> Iterator[Hooks]:
    """A server that refuses connections until the test starts it."""
    with hooks_at(listening=False) as hooks:
        yield hooks


def test_a_failure_is_sent_once_after_the_end(runner: Runner, hooks: Hooks) -> None:
    handle = submit(runner, sh("exit 3"), hooks.url)
    assert runner.wait(handle)
    sent = until(runner, handle, "delivered")
    assert (sent.target, sent.kind, sent.tries) == (f"http://127.0.0.1:{hooks.port}", "end", 1)
    ((path, data),) = hooks.requests
    app_id = handle.rpartition("/")[2]
    assert path == "/T00/secret-part?key=canary"
    assert data.pop("submitted_at") <= data.pop("started_at") <= data.pop("ended_at")
    assert data == {
        "event": "end",
        "text": f"{app_id} FAILED (exit code 3): w/0 failed first",
        "name": "job",
        "state": "FAILED",
        "handle": handle,
        "app": app_id,
        "message": "w/0 failed first",
        "exit_code": 3,
        "first_failure": {"role": "w", "replica": 0, "attempt": 1},
    }


def test_server_that_fails_first_gets_it_once_it_accepts(runner: Runner) -> None:
    with hooks_at(503, 503, 200) as hooks:
        handle = submit(runner, sh("true"), hooks.url)
        assert until(runner, handle, "delivered").tries == 3
        assert len(hooks.requests) == 3


def test_it_is_repeated_until_the_network_is_back(
    runner: Runner, refusing: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = submit(runner, sh("true"), refusing.url)
    waiting = wait_until(lambda: d if (d := only(runner, handle)).tries > 1 else None, "two tries")
    assert waiting.state in ("retry", "sending")
    wait_until(lambda: only(runner, handle).message == "connection refused", "the reason")
    assert main(["status", handle]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "delivered" in line]
    assert line.startswith(f"not yet delivered: http://127.0.0.1:{refusing.port}: ")
    refusing.start()
    refusing.wait_for(1)
    until(runner, handle, "delivered")
    assert len(refusing.requests) == 1
    assert main(["status", handle]) == 0
    assert f"notified: http://127.0.0.1:{refusing.port} " in capsys.readouterr().out


def test_sender_that_was_killed_between_two_tries_is_replaced(runner: Runner, refusing: Hooks) -> None:
    handle = submit(runner, sh("true"), refusing.url)
    lock = Store(paths_of(handle).notifications).lock("end")
    kill_in_a_pause(runner, handle)
    assert locks.wait_free(lock, 60)
    assert only(runner, handle).state == "retry"
    refusing.start()
    assert main(["status", handle]) == 0
    until(runner, handle, "delivered")
    assert main(["status", handle]) == 0
    assert locks.wait_free(lock, 60)
    assert len(refusing.requests) == 1


def test_sender_restarts_as_smaller_process_for_long_pause(runner: Runner, refusing: Hooks) -> None:
    handle = submit(runner, sh("true"), refusing.url)
    paths = paths_of(handle)
    lock = Store(paths.notifications).lock("end")
    kill_in_a_pause(runner, handle)
    assert locks.wait_free(lock, 60)
    code = (
        "import sys; from torchx.notifications import sender as s; s.LONG_PAUSE = 0.0; s.main(sys.argv[1:])"
    )
    subprocess.run([sys.executable, "-c", code, str(paths.folder), "end"], check=True)

    def restarted() -> bool:
        with suppress(OSError):  # it has just ended
            return any(b"time.sleep(" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in senders(handle))
        return False

    wait_until(restarted, "the process that waits")
    assert locks.is_held(lock)
    refusing.start()
    until(runner, handle, "delivered")
    assert locks.wait_free(lock, 60)
    assert len(refusing.requests) == 1


def test_a_try_that_was_interrupted_is_not_repeated(
    runner: Runner, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks.release.clear()
    handle = submit(runner, sh("true"), hooks.url)
    hooks.wait_for(1)
    assert only(runner, handle).message == "being sent"
    for pid in senders(handle):
        os.kill(pid, signal.SIGKILL)
    assert locks.wait_free(Store(paths_of(handle).notifications).lock("end"), 60)
    assert main(["status", handle]) == 0
    assert "not known whether it was delivered: http://127.0.0.1" in capsys.readouterr().out
    launch.start(paths_of(handle), reap=True)
    wait_until(lambda: not senders(handle), "the end of the sender")
    assert only(runner, handle).state == "unknown"
    assert len(hooks.requests) == 1


def test_several_senders_send_it_once(runner: Runner, hooks: Hooks) -> None:
    hooks.release.clear()
    handle = submit(runner, sh("true"), hooks.url)
    hooks.wait_for(1)
    for _ in range(3):
        launch.start(paths_of(handle), reap=True)
    wait_until(lambda: len(senders(handle)) == 1, "the end of the others")
    hooks.release.set()
    until(runner, handle, "delivered")
    launch.start(paths_of(handle), reap=True)
    wait_until(lambda: not senders(handle), "the end of the sender")
    assert len(hooks.requests) == 1


def test_the_end_does_not_wait_for_a_server(runner: Runner, hooks: Hooks) -> None:
    hooks.release.clear()
    handle = submit(runner, sh("true"), hooks.url)
    status = runner.wait(handle)
    assert status is not None
    assert status.is_terminal()
    hooks.wait_for(1)
    assert not locks.is_held(paths_of(handle).lock)
    assert load(paths_of(handle)).has_ended, "the end is recorded before anything is sent"


@pytest.mark.parametrize("both", [False, True])
def test_the_end_of_a_killed_supervisor_is_sent(runner: Runner, hooks: Hooks, both: bool) -> None:
    handle = submit(runner, sh("sleep 600"), hooks.url)
    view = wait_until(lambda: v if (v := load(paths_of(handle))).started_at else None, "the start")
    assert view.guard is not None
    assert view.supervisor is not None
    for process in (view.guard, view.supervisor) if both else (view.supervisor,):
        os.kill(process.pid, signal.SIGKILL)
    assert runner.wait(handle)
    assert hooks.wait_for(1)[0][1]["state"] == "FAILED"
    until(runner, handle, "delivered")
    assert len(hooks.requests) == 1


def test_kinds(runner: Runner, hooks: Hooks) -> None:
    """A success is no failure; of a failure, a target is notified once."""
    first = submit(runner, sh("true"), hooks.url, on=("failure",))
    second = submit(runner, sh("exit 1"), hooks.url, on=("failure",))
    third = submit(runner, sh("exit 1"), hooks.url, on=("failure", "end"))
    for handle in (first, second, third):
        assert runner.wait(handle)
    for handle in (second, third):
        until(runner, handle, "delivered")
        wait_until(lambda handle=handle: not senders(handle), "the end of the sender")  # type: ignore[misc]
    wait_until(lambda: not senders(first), "the end of the sender")
    assert runner.notifications(first) == []
    assert sorted(data["event"] for _, data in hooks.requests) == ["end", "failure"]


def test_a_recorded_stall_is_sent_while_the_job_runs(runner: Runner, hooks: Hooks) -> None:
    handle = submit(runner, sh("sleep 600"), hooks.url, on=("end", "stall"))
    paths = paths_of(handle)
    view = wait_until(lambda: v if (v := load(paths)).started_at else None, "the start")
    with paths.events.open("a") as file:
        file.write(json.dumps({"t": view.seen_at, "e": "stalled", "msg": "no output for 10 min"}) + "\n")
    launch.start(paths, "stall", reap=True)
    ((_, data),) = hooks.wait_for(1)
    assert (data["event"], data["state"], data["message"]) == ("stall", "RUNNING", "no output for 10 min")
    until(runner, handle, "delivered")
    runner.cancel(handle)
    assert hooks.wait_for(2)[1][1]["state"] == "CANCELLED"


def test_files_are_private_and_hold_the_secret_alone(
    runner: Runner, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0)
    try:
        handle = submit(runner, sh("true"), hooks.url)
    finally:
        os.umask(before)
    until(runner, handle, "delivered")
    folder = paths_of(handle).folder
    files = [path for path in (folder, *folder.rglob("*")) if path.exists()]
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in files)
    holders = [path.name for path in files if path.is_file() and b"secret-part" in path.read_bytes()]
    assert holders == ["plan.json"]
    for command in ("status", "describe"):
        for form in ("text", "json"):
            assert main([command, handle, "-o", form]) == 0
    out, err = capsys.readouterr()
    assert "secret-part" not in out + err
    assert "canary" not in out + err


def test_the_sender_of_a_removed_job_ends(runner: Runner, refusing: Hooks) -> None:
    handle = submit(runner, sh("true"), refusing.url)
    wait_until(lambda: only(runner, handle).tries, "a try")
    runner.delete(handle)
    wait_until(lambda: not senders(handle), "the end of the sender")
    assert not paths_of(handle).folder.exists()


def test_damaged_files_are_ignored(runner: Runner, hooks: Hooks) -> None:
    handle = submit(runner, sh("sleep 600"), hooks.url)
    store = Store(paths_of(handle).notifications)
    store.journal.write_bytes(
        b'{"t": 1\n[]\n{"t":1,"target":"x","kind":"end","step":"sending","msg":""}\n\xff\n'
    )
    assert only(runner, handle).state == "planned"
    store.plan_file.write_text('{"schema": 1, "targets": 3}')
    assert runner.notifications(handle) == []
    runner.cancel(handle)
    status = runner.wait(handle)
    assert status is not None
    assert status.state.name == "CANCELLED"
    wait_until(lambda: not senders(handle), "the end of the sender")
    assert not hooks.requests
