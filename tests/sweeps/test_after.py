"""`torchx run --after`: applications that start when others have ended."""

from __future__ import annotations

import json
import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from program import answer, start, torchx
from support import wait_until
from sweeping import entries, kill_conductor, paths, write_component

from torchx.sweeps import runs
from torchx.sweeps.conductor import Conductor
from torchx_cli.completion import offers


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path)
    return tmp_path


def run(*words: str) -> str:
    done = torchx("run", "-d", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("command", ["exec {} true", "port {} 80", "stacks {}"])
def test_a_replica_of_a_waiting_application_does_not_run(command: str) -> None:
    first = run("utils.sh", "sleep 600")
    waiting = run("--after", first, "utils.echo")
    done = torchx(*command.format(waiting).split())
    name, other = waiting.rpartition("/")[2], first.rpartition("/")[2]
    expected = f"error: {name} has not started: waiting for {other} to succeed\n"
    assert (done.returncode, done.stderr) == (1, expected)
    torchx("cancel", first, waiting)


def test_an_application_starts_after_others(folder: Path) -> None:
    """It survives the kill of its conductor while it waits, and shows the reason."""
    first = run("utils.sh", "until test -e go; do sleep 0.05; done; echo first >> seen")
    sweep = run(
        "--each",
        "seed=1",
        "--each",
        "lr=1",
        "train.py:train",
        "--script",
        "until test -e go; do sleep 0.05; done; exit 1",
    )
    after = run("--after", first, "--after", f"{sweep}:failed", "utils.sh", "echo second >> seen; echo hello")
    name, sweeps = first.rpartition("/")[2], sweep.rpartition("/")[2]
    wait_until(lambda: entries(after, "conductor"), "it waits")
    for words in ((), ("-s", "local_cwd")):
        rows = answer("list", *words, "--name", "sh", "-o", "json")
        (row,) = [row for row in rows if row["handle"] != first]
        assert (row["handle"], row["scheduler"], row["state"]) == (after, "local_cwd", "SUBMITTED")
        assert row["msg"] == f"waiting for {name} to succeed, {sweeps} to fail"
    assert after.startswith("local_cwd://torchx/sh-")
    why = answer("why", after, "-o", "json")
    assert (why["cause"]["class"], why["cause"]["evidence"]) == ("after", row["msg"])
    assert why["commands"][:3] == [
        f"torchx why {first}",
        f"torchx why {sweep}",
        f"torchx wait --for running {after.rpartition('/')[2]}",
    ]
    status = torchx("status", after).stdout
    assert f"waiting for {name} to succeed" in status
    assert [line.split() for line in status.splitlines()[2:]] == [
        ["sh", "1", "of", "1", "pending"],
        ["0", "PENDING"],
    ]
    assert kill_conductor(after)
    (folder / "go").touch()
    assert torchx("wait", after).returncode == 0
    assert (folder / "seen").read_text() == "first\nsecond\n"
    assert torchx("log", after).stdout == "sh/0 │ hello\n"
    (row,) = [row for row in answer("list", "-o", "json") if row["handle"] == after]
    assert (row["state"], row["exit_code"]) == ("SUCCEEDED", 0)
    assert (
        answer("status", f"sweep://torchx/{after.rpartition('/')[2]}", "-o", "json")["state"] == "SUCCEEDED"
    )
    assert torchx("delete", after).returncode == 0
    assert not paths(after).folder.exists()
    assert "there is no application" in torchx("status", after).stderr


def test_an_attached_run_waits_and_looks_like_a_job(folder: Path) -> None:
    first = run("utils.sh", "until test -e go; do sleep 0.05; done")
    process = start("run", "--after", first, "-o", "json", "utils.sh", "echo $0; exit 3")
    assert process.stderr is not None
    wait_until(lambda: len(answer("list", "-o", "json")) == 2, "it waits")
    (folder / "go").touch()
    out, err = process.communicate(timeout=120)
    result = json.loads(out)
    assert (result["scheduler"], result["state"], result["exit_code"]) == ("local_cwd", "FAILED", 3)
    assert (result["first_failure"]["role"], "runs" in result) == ("sh", False)
    assert "sweep" not in err
    assert "1 run" not in err


def test_an_attached_end_shows_why_nothing_was_started() -> None:
    failed = run("utils.sh", "exit 3").rpartition("/")[2]
    done = torchx("run", "--after", failed, "utils.sh", "true")
    assert done.returncode == 1
    assert done.stderr.count(f"\n  not started: it waited for {failed} to succeed, which is FAILED\n") == 1


def test_a_condition_that_is_not_met_starts_nothing(folder: Path) -> None:
    failed = run("utils.sh", "exit 3")
    after = run("--after", failed, "utils.sh", "touch started")
    assert torchx("wait", after).returncode == 1
    status = answer("status", "-o", "json", after)
    assert (status["state"], status["msg"].startswith("not started: it waited for ")) == ("CANCELLED", True)
    data = answer("why", "-o", "json", after)
    assert (data["cause"]["class"], data["commands"]) == ("dependency_failed", [f"torchx why {failed}"])
    chained = run("--after", f"{after}:any", "--each", "seed=1,2", "--each", "lr=1", "train.py:train")
    assert torchx("wait", chained).returncode == 0
    assert not (folder / "started").exists()


def test_unknown_applications_are_rejected_and_waiting_ones_are_cancelled(folder: Path) -> None:
    for text in ("unknown", "unknown:any", ":ok"):
        done = torchx("run", "--after", text, "utils.echo")
        assert (done.returncode != 0, done.stdout) == (True, "")
    first = run("utils.sh", "exec sleep 600")
    name = first.rpartition("/")[2]
    for text in (f"{name}:done", f"afterok:{name}"):
        done = torchx("run", "--after", text, "utils.echo")
        assert done.returncode == 2
        assert done.stderr.startswith("error: unknown condition `"), done.stderr
        assert f"\n  conditions: {name}:ok, {name}:any, {name}:failed\n" in done.stderr
    assert first.rpartition("/")[2] in [offer.text for offer in offers.of_flag("after", "run", "", {}, [])]
    assert [offer.text for offer in offers.of_flag("output", "results", "", {}, [])] == [
        "csv",
        "json",
        "yaml",
    ]
    after = run("--after", f"{first}:any", "utils.sh", "touch started")
    assert torchx("cancel", after).returncode == 0
    assert answer("status", "-o", "json", after)["state"] == "CANCELLED"
    assert torchx("cancel", first).returncode == 0
    assert not (folder / "started").exists()


def test_any_error_of_a_wait_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that ends without an entry would leave the sweep waiting."""

    def wait(engine: object, app_id: str, started: object = None) -> runs.Ended:
        raise ValueError("invalid answer")

    monkeypatch.setattr(runs, "wait", wait)
    conductor: Any = Conductor.__new__(Conductor)
    conductor._events, conductor._engine = queue.Queue(), None
    conductor._plan = SimpleNamespace(header=SimpleNamespace(session="s"))
    conductor._wait_for(0, "slurm://s/1")
    conductor._watch(0, "2")
    ends = [conductor._events.get(timeout=60) for _ in range(2)]
    assert [(number, end.state) for number, end in ends] == [(-1, "UNKNOWN"), (0, "FAILED")]
    assert all(end.message.endswith("invalid answer") for _, end in ends)


def test_a_repetition_waits_for_applications_that_have_not_ended(folder: Path) -> None:
    torchx("wait", run("--name", "first", "utils.echo"))  # it has ended, so its name means the other one
    first = run("--name", "first", "utils.sh", "until test -e go; do sleep 0.05; done; exit 1")
    after = run("--after", "first:failed", "--after", f"{first}:any", "utils.echo", "--msg", "a")
    sweep = run("--after", f"{first}:failed", "--each", "msg=a,b", "utils.echo")
    unmet = run("--name", "unmet", "--after", first, "utils.echo", "--msg", "a")
    again = torchx("rerun", "-d", "--set", "msg=b", after).stdout.strip()
    sweep_again = torchx("rerun", "-d", sweep).stdout.strip()
    waits = f"waiting for {first.rpartition('/')[2]} to fail"
    for handle in (again, sweep_again):
        found = answer("status", handle, "-o", "json")
        assert (found["state"], found["msg"].startswith(waits)) == ("SUBMITTED", True)
    (folder / "go").touch()
    torchx("wait", again, sweep_again, unmet)
    assert torchx("log", "--no-prefix", again).stdout == "b\n"
    assert torchx("log", "--no-prefix", sweep_again).stdout == "a\nb\n"
    done = torchx("rerun", unmet)
    note = f"note: starts now: --after {first.rpartition('/')[2]}:ok is not repeated\n"
    assert (done.returncode, note in done.stderr) == (0, True)
    assert "--after" not in torchx("rerun", after).stderr, "its conditions are met"


def test_rerun_once_reports_conditions_that_it_leaves_out(folder: Path) -> None:
    first = run("utils.sh", "until test -e go; do sleep 0.05; done")
    app_id = first.rpartition("/")[2]
    after = run("--after", first, "utils.echo", "--msg", "a")
    done = torchx("rerun", "--once", "repeated", after)
    assert (done.returncode, "a" in done.stderr) == (0, True)  # at once, while the first one runs
    note = f"note: starts now: --after {app_id}:ok is not repeated\n"
    assert done.stderr.count(note) == 1
    assert answer("status", first, "-o", "json")["state"] == "RUNNING"
    (folder / "go").touch()
    torchx("wait", first, after)
    assert note not in torchx("rerun", "--once", "later", after).stderr  # the condition is met
