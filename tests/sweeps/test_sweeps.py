"""Sweeps on this machine: `torchx run --each` and the commands that follow it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from program import COMMAND, answer, environment, torchx
from support import wait_until
from sweeping import conductor, entries, kill_conductor, parameters, paths, write_component

from torchx.machine import processes
from torchx.runner import get_runner
from torchx.specs.status import AppState


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path)
    return tmp_path


def sweep(*args: str, code: int = 0, script: str = "", detach: bool = True) -> str:
    words = [*(["-d"] if detach else []), *args, "train.py:train", *(["--script", script] if script else [])]
    done = torchx("run", *words)
    assert done.returncode == code, done.stderr
    return done.stdout.strip()


def test_a_sweep_from_submission_to_deletion(folder: Path) -> None:
    """One handle for all runs: status, log, list, wait, rerun of the failed ones, delete."""
    script = "echo loss=$LR seed=$SEED; test $SEED != 3 || test -e fixed"
    done = torchx("run", "--each", "lr=1e-1,2e-1", "--each", "seed=1..3", "--at-once", "2", "train.py:train",
                  "--script", script)  # fmt: skip
    handle = done.stdout.strip()
    assert done.returncode == 1
    assert handle.startswith("sweep://torchx/train-")
    assert "run 6 of 6  FAILED" in done.stderr
    assert parameters(handle)[3] == {"lr": "2e-1", "seed": "1"}

    listed = answer("list", "-o", "json")
    assert [(row["handle"], row["state"], row["msg"]) for row in listed] == [
        (handle, "FAILED", "6 runs: 4 succeeded, 2 failed")
    ]
    status = torchx("status", "@last").stdout
    assert "3  FAILED" in status
    assert "lr=2e-1 seed=3" in status
    assert torchx("log", "--no-prefix", "@last/4").stdout == "loss=0.2 seed=1\n"
    assert torchx("log", "--no-prefix", "@last", "-n", "2").stdout.count("\n") == 2
    assert torchx("log", "@last/7").returncode == 1
    run = f"{handle.rpartition('/')[2]}-4"
    assert torchx("log", "--no-prefix", run).stdout == "loss=0.2 seed=1\n"
    assert torchx("wait", "@last").returncode == 1

    assert "torchx rerun --failed " in torchx("why", "@last").stdout.splitlines()[-1]
    (folder / "fixed").touch()
    again = torchx("rerun", "--failed", "@last")
    assert (again.returncode, again.stdout.strip()) == (0, handle)
    assert again.stderr.count("SUCCEEDED after") == 3
    assert [entry["n"] for entry in entries(handle, "end")][6:] == [3, 6]
    assert answer("status", "-o", "json", "@last")["state"] == "SUCCEEDED"
    assert "no run has failed" in torchx("rerun", "--failed", "@last").stderr
    assert torchx("rerun", "--failed", run).returncode == 2

    every = torchx("rerun", "@last").stdout.strip()
    assert every not in ("", handle)
    assert parameters(every) == parameters(handle)
    assert torchx("delete", handle, every).returncode == 0
    assert answer("list", "-o", "json") == []
    home = paths(handle).folder.parent.parent
    assert [*(home / "jobs").iterdir(), *paths(handle).folder.parent.glob("[!.]*")] == []


def test_the_same_parameters_are_the_same_run(folder: Path) -> None:
    script = "echo $SEED >> seen; test $SEED != 2 || test -e fixed"
    first = sweep("--each", "seed=1,2", "--each", "lr=0.1", code=1, script=script, detach=False)
    (folder / "fixed").touch()
    more = torchx(
        "run", "--each", "lr=1e-1", "--each", "seed=1..3", "--json", "train.py:train", "--script", script
    )
    data = json.loads(more.stdout)
    assert (data["handle"], data["runs"], data["submitted"], data["existed"]) == (first, 3, 2, False)
    assert sorted((folder / "seen").read_text().split()) == ["1", "2", "2", "3"]
    same = torchx("run", "--each", "lr=1e-1", "--each", "seed=3,1", "train.py:train", "--script", script)
    assert (same.returncode, same.stdout.strip()) == (0, first)
    repeat = f"  to run all again: torchx rerun {first.rpartition('/')[2]}\n"
    already = "nothing was submitted: the sweep has these runs already, 1 at the same time"
    assert same.stderr.startswith(f"{already}\n{repeat}")
    assert (
        f"2 of 3 runs are submitted, 1 of them again, 1 at the same time; the others exist\n{repeat}"
        in more.stderr
    )
    other = sweep("--each", "lr=0.1", "--each", "seed=1", script=f"{script} ", detach=False)
    named = sweep("--each", "lr=0.1", "--each", "seed=1", "--name", "other", script=script, detach=False)
    assert first not in (other, named)
    sweep("--each", "lr=7", code=1, script="exit 1", detach=False)
    all_again = torchx("run", "--each", "lr=7", "train.py:train", "--script", "exit 1").stderr
    assert all_again.startswith("1 of 1 runs are submitted, 1 of them again, 1 at the same time\nrun 1 of 1 ")


@pytest.mark.parametrize("given", ["a=1,1,2", "a=1,1.0,2", "a=1..2,1"])
def test_duplicate_runs_are_noted(given: str, folder: Path) -> None:
    done = torchx("run", "--dryrun", "--each", given, "utils.sh", ": {a}")
    notes = done.stderr.splitlines()
    assert notes[0] == "note: 1 duplicate run left out"
    assert notes[1].startswith("2 runs; the request of the first one (a=1")


def test_a_misspelled_name_in_braces_is_noted(folder: Path) -> None:
    run = ["run", "--dryrun", "--each", "epochs=1,2", "utils.sh"]
    note = "note: `{epoch}` is not a parameter of the sweep; did you mean `{epochs}`?"
    assert torchx(*run, ": {epoch} {epochs}").stderr.splitlines()[0] == note
    assert "note" not in torchx(*run, ": {epochs} {run} ${epoch} {other}").stderr


def test_a_changed_script_is_reported_with_existing_runs(folder: Path) -> None:
    script = folder / "a.py"
    script.write_text("")
    line = ["run", "--each", "lr=1,2", "utils.python", "--script", "a.py", "--", "{lr}"]
    assert "has changed" not in torchx(*line).stderr
    os.utime(script, (0, 0))
    assert "has changed" not in torchx(*line).stderr
    later = time.time() + 3600
    os.utime(script, (later, later))
    assert torchx(*line).stderr.startswith(
        "note: a.py has changed since the sweep was submitted\nnothing was submitted: the sweep has these "
    )


def test_parameters_are_checked_before_a_run_is_submitted(folder: Path) -> None:
    (folder / "runs.csv").write_text("lr,seed\n0.1,1\n0.2,x\n")
    (folder / "bad.csv").write_text("lr,seed\n0.1\n")
    for words, message in (
        (["--each", "lrr=1"], "did you mean `lr`?"),
        (["--each", "lr=1", "--each", "lr=2"], "is given twice"),
        (["--each", "lr=1,fast"], 'lr (from --each) takes a float, got "fast"'),
        (["--each", "@runs.csv"], "in the run lr=0.2, seed=x"),
        (["--each", "@bad.csv"], "the number of values in line 2 is 1, expected 2"),
        (["--each", "@none.csv"], "cannot be read"),
        (["--each", "lr=1,2", "--each", "seed=1", "--zip"], "lr has 2, seed has 1"),
        (["--each", "seed=3..1..1"], "is empty"),
        (["--each", "seed=1..1000000"], "1 to 100,000 runs"),
        (["--each", "lr=0.1..0.5"], "must have whole numbers"),
        (["--each", "lr=1,1e-4..1e-2"], "must have whole numbers"),
        (["--each", "seed=1...3"], "must have whole numbers"),
        (["--each", "lr"], "NAME=VALUES"),
        (["--at-once", "2"], "--at-once requires --each"),
        (["--each", "lr=1", "--once", "x"], "--once cannot be combined"),
    ):
        done = torchx("run", *words, "train.py:train")
        assert (done.returncode, done.stdout) == (2, ""), (words, done.stderr)
        assert message in done.stderr, done.stderr
    taken = torchx("run", "--each", "lr=1", "train.py:train", "--lr", "2")
    assert (taken.returncode, "by --each and as an argument" in taken.stderr) == (2, True)
    assert answer("list", "-o", "json") == []


def test_files_zip_and_placeholders(folder: Path) -> None:
    (folder / "runs.csv").write_text("lr, seed\n0.1, 1\n0.2, 2\n\n")
    handle = sweep("--each", "@runs.csv", script="echo $LR-$SEED-{seed}", detach=False)
    assert torchx("log", "--no-prefix", handle).stdout == "0.1-0-1\n0.2-0-2\n"
    zipped = sweep("--each", "lr=1,2", "--each", "seed=2..1", "--zip", detach=False)
    assert torchx("log", "--no-prefix", zipped).stdout == "loss=1.0 seed=2\nloss=2.0 seed=1\n"
    shown = torchx("run", "--each", "lr=1,2", "--dryrun", "train.py:train")
    assert "2 runs; the request of the first one (lr=1)" in shown.stderr
    assert "LR=1.0" in shown.stdout


def test_runs_start_up_to_the_limit_and_are_cancelled(folder: Path) -> None:
    handle = sweep(
        "--each", "seed=1..5", "--each", "lr=1", "--at-once", "2", script="echo up; exec sleep 600"
    )
    wait_until(lambda: len(entries(handle, "begin")) == 2, "two runs have begun")
    assert answer("list", "-o", "json")[0]["msg"] == "5 runs: 3 waiting, 2 running"
    more = sweep("--each", "seed=1..5", "--each", "lr=1", "--at-once", "3", script="echo up; exec sleep 600")
    assert more == handle
    wait_until(lambda: len(entries(handle, "begin")) == 3, "a third run has begun")
    done = torchx("cancel", "@last")
    assert done.returncode == 0
    assert "CANCELLED" in done.stderr
    assert answer("status", "-o", "json", handle)["state"] == "CANCELLED"
    assert not processes.is_alive(conductor(handle))
    assert len(entries(handle, "begin")) == 3
    assert {entry["s"] for entry in entries(handle, "end")} == {"CANCELLED"}


def test_a_killed_conductor_is_continued_by_any_command(folder: Path) -> None:
    handle = sweep(
        "--each",
        "seed=1..3",
        "--each",
        "lr=1",
        script="echo $SEED >> seen; until test -e go; do sleep 0.05; done",
    )
    wait_until(lambda: (folder / "seen").exists(), "the first run has begun")
    assert kill_conductor(handle)
    wait_until(lambda: answer("list", "-o", "json")[0]["state"] == "RUNNING", "the run was found again")
    (folder / "go").touch()
    assert torchx("wait", handle).returncode == 0
    assert sorted((folder / "seen").read_text().split()) == ["1", "2", "3"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_run_ends_once_under_random_kills(folder: Path) -> None:
    """Conductors and command lines are killed at random; each run is started once, and has one end."""
    count = 24
    words = ["--each", f"seed=1..{count}", "--each", "lr=1", "--at-once", "4"]
    handle = sweep(*words, script="echo $SEED >> seen")
    same = ["run", "-d", *words, "train.py:train", "--script", "echo $SEED >> seen"]
    chance, kills = random.Random(7), 0
    with get_runner() as runner:
        while kills < 8 and (status := runner.status(handle)) and not status.is_terminal():
            begun = len(entries(handle, "begin"))
            target = min(begun + chance.randrange(4), count)
            wait_until(  # each query: a child of the killed conductor may hold its lock for a moment
                lambda: (
                    runner.status(handle)
                    and (len(entries(handle, "begin")) >= target or entries(handle, "done"))  # noqa: B023
                ),
                "more runs have begun",
            )
            kills += kill_conductor(handle)
            _kill_a_command_line(chance, ["wait", handle] if kills % 2 else same)
        status = runner.wait(handle)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
    assert kills
    assert sorted(map(int, (folder / "seen").read_text().split())) == [*range(1, count + 1)]
    assert sorted(entry["n"] for entry in entries(handle, "end")) == [*range(1, count + 1)]


def _kill_a_command_line(chance: random.Random, words: list[str]) -> None:
    """Kills a command line that starts the conductor again, at any point."""
    with subprocess.Popen(
        [*COMMAND, *words], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as command:
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.wait(chance.uniform(0.05, 0.5))
        command.kill()


def test_a_sweep_from_python(folder: Path) -> None:
    with get_runner() as runner:
        handle = runner.sweep("train.py:train", {"lr": [0.1, 0.2], "seed": [1]}, "local_cwd", at_once=0)
        status = runner.wait(handle)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        assert [role.role for role in status.roles] == ["1", "2"]
        assert runner.sweep("train.py:train", [{"lr": 0.2, "seed": 1}], "local_cwd") == handle


def test_damaged_files_give_no_traceback(folder: Path) -> None:
    handle = sweep("--each", "lr=1", detach=False)
    with paths(handle).journal.open("a") as file:
        file.write('{"e":"end"}\nnull\n[]\n{"e":"begin","n":-1}\n{"e":"end","n":1,"s":"X"}\n{"half')
    assert answer("status", "-o", "json", handle)["state"] == "SUCCEEDED"
    paths(handle).plan.write_text("{}\n")
    shown = torchx("status", handle)
    assert shown.returncode == 1
    assert "Traceback" not in shown.stderr
    assert answer("list", "-o", "json")[0]["state"] == "UNKNOWN"
    assert torchx("delete", handle).returncode == 0


def test_part_of_application_is_rejected_with_its_handle() -> None:
    handle = torchx("run", "-d", "train.py:train", "--lr", "1").stdout.strip()
    for given in (f"{handle}/train", f"{handle}/train/0", "@last/train"):
        message = f"error: `{given}` is a part of an application, expected a whole one"
        assert torchx("status", given).stderr == f"{message}\n  use its handle: {handle}\n"
    assert torchx("log", "--no-prefix", "-f", f"{handle}/train").returncode == 0


def test_the_result_is_that_of_the_requested_runs(folder: Path) -> None:
    """Earlier runs of the same sweep change neither the exit code nor the first failure."""
    command = ["run", "--name", "mg", "utils.sh", "exit {code}"]

    def run(*flags: str) -> tuple[int, str, str]:
        done = torchx(*command[:1], *flags, *command[1:])
        return done.returncode, done.stdout, done.stderr

    assert run("--each", "code=3")[0] == 3
    code, handle, text = run("--each", "code=0")
    assert code == 0
    assert f"added to {handle.strip().rpartition('/')[2]}, which has 1 other run" in text
    assert "the whole sweep: 2 runs: 1 succeeded, 1 failed" in text
    code, printed, _ = run("-o", "json", "--each", "code=0")
    result = json.loads(printed)
    assert (code, result["state"], result["exit_code"], result["submitted"]) == (0, "SUCCEEDED", 0, 0)
    assert run("--each", "code=0,4")[0] == 4, "the first of its own failures"
    assert torchx("wait", "mg").returncode == 3, "the whole sweep"


def test_a_sweep_that_runs_again_is_not_failed(folder: Path) -> None:
    script = f"test ! -e {folder}/slow || sleep 60; exit {{a}}"
    command = ["run", "-d", "-o", "json", "--name", "stale", "--each", "a=1,2", "--at-once", "2"]
    torchx(*command, "utils.sh", script)
    assert torchx("wait", "stale").returncode in (1, 2)
    (folder / "slow").touch()
    result = json.loads(torchx(*command, "utils.sh", script).stdout)
    torchx("cancel", "stale")
    assert (result["submitted"], result["exit_code"], result["first_failure"]) == (2, None, None)
    assert result["state"] in ("PENDING", "RUNNING")
