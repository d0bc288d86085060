"""Sweeps whose runs wait in the queue of this machine, and the times of sweeps that go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import fakegpus
import pytest
from program import answer, torchx
from support import wait_until
from sweeping import conductor, kill_conductor

from torchx.machine import processes
from torchx.runner import get_runner


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakegpus.FakeGpus:
    monkeypatch.chdir(tmp_path)
    return fakegpus.install(monkeypatch, tmp_path, 4)


def run(*words: str) -> str:
    done = torchx("run", "-d", "-s", "local_cwd", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def status(handle: str) -> dict[str, Any]:
    found: dict[str, Any] = answer("status", handle, "-o", "json")
    return found


def until_message(handle: str, expected: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = status(handle)
        return found if expected in found["msg"] else None

    return wait_until(look, expected)


def test_runs_that_wait_in_the_queue_are_not_running() -> None:
    """All commands agree; the queue is named, and `torchx queue` changes all waiting runs."""
    hog = run("--name", "hog", "utils.sh", "--gpu", "3", "until test -e go; do sleep 0.05; done")
    sweep = run("--name", "swg", "--each", "x=1,2", "--at-once", "2", "utils.sh", "--gpu", "2", "sleep {x}00")
    app_id = sweep.rpartition("/")[2]
    waits = "2 runs: 2 waiting; run 1: waiting for 2 GPUs: 1 of 4 is free; first in the queue"
    found = until_message(sweep, waits)
    assert (found["state"], found["started_at"]) == ("PENDING", None)
    assert [row["state"] for row in answer("results", sweep, "-o", "json")] == ["PENDING"] * 2
    why = answer("why", sweep, "-o", "json")
    assert why["cause"]["class"] == "queued"
    assert why["cause"]["evidence"].endswith(f"; {hog.rpartition('/')[2]} holds GPU 0, 1, 2")
    assert why["commands"][0] == "torchx queue"
    assert torchx("wait", "--for", "running", "--timeout", "0.1", sweep).returncode == 124
    wait_until(lambda: len(answer("queue", "-o", "json")["waiting"]) >= 2, "both wait")
    assert torchx("queue", "hold", "swg").returncode == 0
    until_message(sweep, f"held in the queue; to release them: torchx queue release {app_id}")
    assert answer("why", sweep, "-o", "json")["cause"]["class"] == "held"
    assert kill_conductor(sweep)
    Path("go").touch()
    assert torchx("wait", hog).returncode == 0
    assert torchx("queue", "release", "swg").returncode == 0
    released = time.time()
    until_message(sweep, "2 runs: 2 running")
    with get_runner() as runner:
        described = runner.status(sweep)
        assert described is not None and described.started_at is not None
        assert described.started_at.timestamp() > released - 5, "the time in the queue does not count"
    torchx("cancel", sweep)
    torchx("wait", sweep)
    done = torchx("queue", "hold", sweep)
    assert (done.returncode, "does not wait in the queue: it is CANCELLED" in done.stderr) == (1, True)


def test_the_time_of_a_sweep_has_no_pauses() -> None:
    words = ["--name", "pause", "utils.sh", "exit {x}"]
    sweep = run("--each", "x=0", *words)
    assert torchx("wait", sweep).returncode == 0
    first = conductor(sweep)
    wait_until(lambda: not processes.is_alive(first), "its conductor has ended")
    later = time.time()
    run("--each", "x=0,3", *words)
    assert torchx("wait", sweep).returncode == 3
    with get_runner() as runner:
        for again in (False, True):
            if again:
                later = time.time()
                torchx("rerun", "--failed", "-d", sweep)
                torchx("wait", sweep)
            described = runner.status(sweep)
            assert described is not None and described.started_at is not None
            assert described.started_at.timestamp() >= later
            (row,) = [app for app in runner.list("sweep") if app.app_handle == sweep]
            assert row.started_at == described.started_at
