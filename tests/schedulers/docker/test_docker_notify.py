"""Notifications of applications in containers: a process on this machine waits for the end and sends them."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator

import pytest
from containers import Jobs, sh
from hooks import Hooks
from support import wait_until

from torchx.errors import UsageError
from torchx.machine import locks
from torchx.notifications.plan import Notify
from torchx.notifications.store import Store
from torchx.runner import Runner, get_runner
from torchx.specs import AppDef
from torchx_cli.main import main

pytestmark = pytest.mark.docker


@pytest.fixture
def runner() -> Iterator[Runner]:
    with get_runner("torchx") as runner:
        yield runner


def submit(runner: Runner, jobs: Jobs, script: str, *targets: str) -> str:
    info = runner.dryrun(AppDef("job", [sh(script)]), "local_docker", {"grace_period": 1.0})
    info.notify = Notify(targets)
    handle = runner.schedule(info)
    jobs.ids.append(handle.rpartition("/")[2])
    assert not info.notes
    return handle


def pids_of(folder: os.PathLike[str]) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder) in arguments:
            found.append(int(name))
    return found


def test_end_is_sent_and_files_are_removed_with_application(runner: Runner, jobs: Jobs, hooks: Hooks) -> None:
    handle = submit(runner, jobs, "exit 3", hooks.url)
    store = Store(runner._notifications_folder(handle))
    assert stat.S_IMODE(store.plan_file.stat().st_mode) == 0o600
    ((_, data),) = hooks.wait_for(1)
    assert (data["handle"], data["state"], data["exit_code"]) == (handle, "FAILED", 3)
    assert data["first_failure"] == {"role": "w", "replica": 0, "attempt": 1}
    assert data["name"] == "job"
    assert locks.wait_free(store.lock("end"), 60)
    assert [(d.kind, d.state) for d in runner.notifications(handle)] == [("end", "delivered")]
    assert not pids_of(store.folder)
    runner.delete(handle)
    assert not store.folder.exists()


def test_a_watcher_that_was_killed_is_replaced(
    runner: Runner, jobs: Jobs, hooks: Hooks, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = submit(runner, jobs, "sleep 600", hooks.url)
    store = Store(runner._notifications_folder(handle))
    for pid in pids_of(store.folder):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            assert b"secret-part" not in file.read()
        os.kill(pid, signal.SIGKILL)
    assert locks.wait_free(store.lock("end"), 60)
    assert main(["status", handle]) == 0
    assert f"notifies: http://127.0.0.1:{hooks.port}\n" in capsys.readouterr().out
    assert main(["status", handle]) == 0, "starts no second one"
    wait_until(lambda: len(pids_of(store.folder)) == 1, "one watcher")
    runner.cancel(handle)
    assert hooks.wait_for(1)[0][1]["state"] == "CANCELLED"
    assert locks.wait_free(store.lock("end"), 60)
    assert len(hooks.requests) == 1


def test_stalls_are_not_promised(runner: Runner, jobs: Jobs, hooks: Hooks) -> None:
    """Without --stall none are detected: of the default kinds only the end is planned."""
    info = runner.dryrun(AppDef("job", [sh("true")]), "local_docker", {})
    info.notify = Notify([hooks.url], ["stall"])
    with pytest.raises(UsageError, match="records no stalls"):
        runner.schedule(info)


def test_an_application_that_disappears_is_reported(runner: Runner, jobs: Jobs, hooks: Hooks) -> None:
    handle = submit(runner, jobs, "sleep 600", hooks.url)
    store = Store(runner._notifications_folder(handle))
    runner.scheduler("local_docker").delete(handle.rpartition("/")[2])  # by another machine: the files remain
    assert locks.wait_free(store.lock("end"), 120)
    end = store.deliveries()[0]
    assert (end.state, end.message) == ("failed", "the application is no longer known to its scheduler") or (
        hooks.requests and hooks.requests[0][1]["state"] == "CANCELLED"
    )
