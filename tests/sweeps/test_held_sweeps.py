"""`torchx queue hold` and `release` of sweeps with runs that are not submitted yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import answer, torchx
from support import wait_until
from sweeping import kill_conductor


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def submit(script: str, *flags: str) -> str:
    done = torchx(
        "run", "-d", "-s", "local_cwd", "--name", "held", "--each", "x=1..4", *flags, "utils.sh", script
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def states(handle: str) -> list[str]:
    return [row["state"] for row in answer("results", handle, "-o", "json")]


def test_a_held_sweep_starts_no_further_run() -> None:
    sweep = submit("until test -e go{x}; do sleep 0.05; done", "--at-once", "1")
    app_id = sweep.rpartition("/")[2]
    wait_until(lambda: states(sweep)[0] == "RUNNING", "run 1 runs")
    done = torchx("queue", "hold", sweep)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{app_id} (3 waiting runs) is held\n")
    Path("go1").touch()
    wait_until(lambda: states(sweep)[0] == "SUCCEEDED", "run 1 has ended")
    assert kill_conductor(sweep)
    found = answer("status", sweep, "-o", "json")  # it starts another conductor
    assert found["state"] == "PENDING"
    assert found["msg"].endswith(f"held in the queue; to release them: torchx queue release {app_id}")
    why = answer("why", sweep, "-o", "json")
    assert (why["cause"]["class"], why["commands"][0]) == ("held", f"torchx queue release {app_id}")
    assert torchx("wait", "--for", "running", "--timeout", "0.3", sweep).returncode == 124
    assert states(sweep) == ["SUCCEEDED", *["PENDING"] * 3]
    for number in "234":
        Path(f"go{number}").touch()
    done = torchx("queue", "release", sweep)
    assert (done.returncode, done.stderr) == (0, f"{app_id} (3 waiting runs) is released\n")
    assert torchx("wait", sweep).returncode == 0
    assert states(sweep) == ["SUCCEEDED"] * 4


def test_runs_of_a_held_cancelled_sweep_start_again() -> None:
    sweep = submit("until test -e go; do sleep 0.05; done; : {x}", "--at-once", "1")
    assert torchx("queue", "hold", sweep).returncode == 0
    assert torchx("cancel", sweep).returncode == 0
    Path("go").touch()
    assert torchx("rerun", "--failed", "-d", sweep).returncode == 0
    assert torchx("wait", sweep).returncode == 0


def test_a_sweep_without_a_waiting_run_cannot_be_held() -> None:
    sweep = submit("exec sleep 60{x}", "--at-once", "0")
    wait_until(lambda: states(sweep) == ["RUNNING"] * 4, "all run")
    done = torchx("queue", "hold", sweep)
    assert (done.returncode, "does not wait in the queue: it is RUNNING" in done.stderr) == (1, True)
    torchx("cancel", sweep)


def test_a_cancel_waits_for_a_run_that_starts_meanwhile() -> None:
    sweep = submit("exec sleep 60{x}", "--at-once", "1")
    wait_until(lambda: states(sweep)[0] == "RUNNING", "run 1 runs")
    done = torchx("cancel", f"{sweep}/1", f"{sweep}/2", "-o", "json")
    assert done.returncode == 0
    assert {row["state"] for row in answer("results", sweep, "-o", "json")[:2]} == {"CANCELLED"}
    assert '"RUNNING"' not in done.stdout
    torchx("cancel", sweep)


def test_errors_about_a_sweep_name_its_runs() -> None:
    sweep = submit("exit {x}", "--at-once", "0")
    assert torchx("wait", sweep).returncode != 0
    app_id = sweep.rpartition("/")[2]
    for command in (("exec", sweep, "true"), ("port", sweep, "80")):
        assert f"{app_id} is a sweep, expected one of its runs" in torchx(*command).stderr
    assert torchx("delete", f"{sweep}/1").returncode == 0
    assert f"run 1 of {app_id} was deleted" in torchx("rerun", "-d", f"{sweep}/1").stderr
