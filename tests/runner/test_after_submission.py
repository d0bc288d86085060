"""Errors of steps after a submission: the handle is returned, and a note has the reason."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakegpus
import pytest
from local import ended, scheduler, sh
from memory_scheduler import MemoryScheduler
from program import torchx
from support import wait_until

from torchx.errors import StateError
from torchx.machine import locks
from torchx.notifications.plan import Notify
from torchx.queue import keepers
from torchx.runner import notifications, once, origins, provenance, resolve
from torchx.runner.api import Runner
from torchx.specs.app import AppDef
from torchx.specs.home import TORCHX_HOME
from torchx.specs.resources import Resource
from torchx.sweeps import launch as sweep_launch


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


ERRORS = (StateError("cause"), OSError(28, "cause"), IndexError("cause"))


def submitted(**fields: Any) -> list[str]:
    """Submits an application; returns the notes."""
    engine = MemoryScheduler("s")
    with Runner("s", {"memory": lambda session_name, **_: engine}) as runner:
        info = runner.dryrun(AppDef("job", [sh("true")]), "memory")
        info.notify = fields.get("notify")
        assert info.app is not None
        info.app.metadata |= fields.get("metadata", {})
        handle = runner._schedule_recorded(info)
        assert handle.rpartition("/")[2] in engine.jobs
        return list(info.notes)


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_step_is_a_note(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_PROVENANCE", "1")
    monkeypatch.setattr(notifications, "request", failing(error))
    monkeypatch.setattr(provenance, "begin", failing(error))
    monkeypatch.setattr(resolve, "recall_last", failing(error))
    notes = submitted(notify=Notify.recorded(["exec:true"], ["end"]))
    assert [note.partition(":")[0] for note in notes] == [
        "no notifications are sent",
        "its source is not recorded",
    ]
    assert all("cause" in note for note in notes)


def test_a_name_that_cannot_be_recorded_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    write = once._write

    def full(path: Path, entry: Any) -> None:
        if entry.handle:
            raise OSError(28, "No space left on device")
        write(path, entry)

    monkeypatch.setattr(once, "_write", full)
    assert "No space left" in submitted(metadata={"torchx/once": "a"})[-1]


@pytest.mark.parametrize("error", ERRORS)
def test_a_failed_look_at_the_queue_is_a_note(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakegpus.install(monkeypatch, tmp_path, 1)
    role = sh("echo x")
    role.resource = Resource(1, 1, 64)
    with monkeypatch.context() as patched:
        patched.setattr(keepers, "connect_own", failing(error))
        patched.setattr(keepers, "names", failing(error))
        patched.setattr("torchx.schedulers.shared.queue.has_to_queue", lambda *_: True)
        info = scheduler().submit_dryrun(AppDef("job", [role]), {})
        app_id = scheduler().schedule(info)
    assert any("cause" in note for note in info.notes), info.notes
    scheduler().reconcile(app_id)
    found = ended(app_id)
    assert found.state.name == "SUCCEEDED", found.msg


@pytest.mark.parametrize("error", ERRORS)
def test_a_sweep_without_conductor_is_a_note(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runner("s") as runner:
        with monkeypatch.context() as patched:
            patched.setattr(sweep_launch, "start", failing(error))
            handle = runner.sweep("utils.echo", {"msg": ["a", "b"]}, "local_cwd")
        status = runner.wait(handle)
        assert status is not None
        assert status.state.name == "SUCCEEDED"


@pytest.mark.parametrize("command", [["run", "-d", "utils.echo"], ["rerun", "-d"]])
def test_a_state_home_that_becomes_full_hides_no_handle(command: list[str], tmp_path: Path) -> None:
    """Nothing can be written after the submission: the files of later steps are folders."""
    first = torchx("run", "-d", "-s", "local_cwd", "utils.echo").stdout.strip()
    home = TORCHX_HOME()
    for name in ("last", "last.lock"):
        (home / name).unlink(missing_ok=True)
        (home / name).mkdir()
    done = torchx(*command, *([first] if command[0] == "rerun" else []))
    assert (done.returncode, done.stdout[:12]) == (0, "local_cwd://"), done.stderr


def test_handles_of_simultaneous_submissions_are_all_kept() -> None:
    for round_ in range(20):
        handles = [f"local_cwd://torchx/job-{round_}-{n}" for n in range(10)]
        begin, ready = os.pipe()
        pids = []
        for handle in handles:
            if not (pid := os.fork()):
                os.close(ready)
                os.read(begin, 1)  # until all are there
                resolve.remember_last(handle)
                os._exit(0)
            pids.append(pid)
        os.close(ready)
        for pid in pids:
            os.waitpid(pid, 0)
        os.close(begin)
        assert sorted(resolve.recall_last()[: len(handles)]) == handles


def test_a_stopped_submission_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    TORCHX_HOME().mkdir(exist_ok=True)
    held = [locks.acquire(TORCHX_HOME() / name) for name in ("last.lock", "submitted.lock")]
    assert None not in held
    monkeypatch.setattr(origins, "LOCKED_WITHIN", 0.05)
    resolve.remember_last("slurm://torchx/1")
    origins.remember("slurm://torchx/1")
    for lock in held:
        os.close(lock or 0)
    assert resolve.recall_last()[0] == origins.recall()[-1] == "slurm://torchx/1"
    wait_until(lambda: not locks.is_held(TORCHX_HOME() / "last.lock"), "the lock is free")
