"""The runs of a sweep as names of applications: `SWEEP/2`."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine import IMAGE
from program import answer, torchx
from support import wait_until
from sweeping import entries, write_component
from sweepruns import check_runs_are_names

from torchx.runner import get_runner
from torchx.scheduling.query import AppQuery
from torchx.sweeps import BACKEND, view
from torchx.sweeps.paths import SweepPaths


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_component(tmp_path)
    return tmp_path


def test_runs_of_local_jobs_are_names(folder: Path) -> None:
    check_runs_are_names(folder)


@pytest.mark.docker
def test_runs_of_containers_are_names(folder: Path) -> None:
    check_runs_are_names(folder, "-s", "local_docker", arguments=["--image", IMAGE])


def test_runs_that_have_not_started_are_reported() -> None:
    line = ["-d", "--each", "lr=1,2", "--at-once", "1", "train.py:train", "--script", "sleep 600"]
    handle = torchx("run", *line).stdout.strip()
    app_id = handle.rpartition("/")[2]
    wait_until(lambda: entries(handle, "begin"), "run 1 is submitted")
    for command in ("exec {} true", "port {} 80", "stacks {}", "status {}"):
        done = torchx(*command.format("@last/2").split())
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: run 2 of {app_id} has not started: it is PENDING\n")
    for command in ("log {}", "attach {}", "exec {} true", "port {} 80", "stacks {}", "status {}", "why {}"):
        absent = torchx(*command.format(f"{app_id}/3").split())
        expected = f"error: {app_id} has no run 3: its last one is 2\n  all runs: torchx results {app_id}\n"
        assert (absent.returncode, absent.stderr) == (1, expected)
    assert "runs         1 PENDING, 1 RUNNING\n" in torchx("why", handle).stdout
    shown = torchx("top", handle).stdout
    assert (" 2 runs on sweep " in shown, "\n  2 " in shown, "replicas" in shown) == (True, True, False)
    part = torchx("status", f"{app_id}/1/train/0")
    assert part.returncode == 2
    assert part.stderr.endswith(f"expected a whole one\n  use its handle: local_cwd://torchx/{app_id}-1\n")
    torchx("cancel", handle)


def test_a_run_is_cancelled_before_its_start() -> None:
    script = "test $LR != 1.0 || exec sleep 600; touch started-$LR"
    line = ["-d", "--each", "lr=1,2,3,4", "--at-once", "1", "train.py:train", "--script", script]
    handle = torchx("run", *line).stdout.strip()
    app_id = handle.rpartition("/")[2]
    wait_until(lambda: entries(handle, "begin"), "run 1 is submitted")
    done = torchx("cancel", "@last/2", "@last/9")
    assert (done.returncode, f"{app_id}/2 CANCELLED\n" in done.stderr) == (1, True), done.stderr
    (row,) = answer("cancel", "@last/4", "-o", "json")
    assert (row["app_id"], row["state"], row["cancelled"]) == (f"{app_id}/4", "CANCELLED", True)
    again = torchx("cancel", "@last/2")
    assert again.stderr.startswith(f"error: run 2 of {app_id} has not started: it is CANCELLED\n")
    torchx("cancel", "@last/1")
    torchx("wait", handle)
    states = [row["state"] for row in answer("results", handle, "-o", "json")]
    assert states == ["CANCELLED", "CANCELLED", "SUCCEEDED", "CANCELLED"]
    assert [path.name for path in Path().glob("started-*")] == ["started-3.0"]


def test_several_sweeps_of_a_name_are_reported() -> None:
    for lr in ("1", "2"):
        torchx("run", "--each", "seed=1", "train.py:train", "--lr", lr)
    done = torchx("status", "train/1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: `train` matches 2 applications: ")
    assert answer("status", "train~1/1", "-o", "json")["state"] == "SUCCEEDED"
    older = torchx("status", "train~2/1").stderr.splitlines()[0]
    assert older == "error: there is no `train~2`: known sweeps called `train`: 2"


def test_a_job_of_the_same_name_hides_no_sweep() -> None:
    sweep = torchx("run", "--each", "lr=1,2", "train.py:train", "--script", "test $LR = 1.0").stdout.strip()
    job = torchx("rerun", "--name", "train", f"{sweep}/2").stdout.strip()  # a failure, and of the same name
    ids = [handle.rpartition("/")[2] for handle in (job, sweep)]
    for command in ("status", "log", "why", "describe", "rerun", "delete"):
        first, hint, *_ = torchx(command, "train").stderr.splitlines()
        assert first == f"error: `train` matches 2 applications: {ids[0]} (FAILED), {ids[1]} (FAILED)"
        assert hint.startswith("  the newest called train: train~0   the one before: train~1   all: ")
    found = [answer("status", text, "-o", "json")["handle"] for text in ("train~0", "train~1")]
    assert found == [job, sweep]
    assert [row["parameters"] for row in answer("results", "train", "-o", "json")] == [{"lr": 1}, {"lr": 2}]
    assert torchx("rerun", "train", "--failed").stderr.startswith("submitted again: 1 of 2 runs")
    assert torchx("results", "train", "--json").stdout == torchx("results", sweep, "--json").stdout


@pytest.mark.parametrize("argument", ["rate {lr} of {run}", "{lr} {run}"])
def test_a_rerun_changes_a_parameter_in_braces(argument: str) -> None:
    sweep = torchx("run", "--each", "lr=1,2", "utils.echo", "--msg", argument).stdout.strip()
    job = torchx("rerun", "--set", "lr=7", f"{sweep}/2").stdout.strip()
    assert torchx("log", "--no-prefix", job).stdout == argument.format(lr=7, run=2) + "\n"
    other = torchx("rerun", "--set", "rate=7", f"{sweep}/2")
    assert (other.returncode, other.stdout) == (2, "")


def test_a_rerun_of_a_run_is_named_after_it() -> None:
    sweep = torchx("run", "--each", "lr=1,2", "train.py:train").stdout.strip()
    job = torchx("rerun", f"{sweep}/2").stdout.strip()
    found = answer("describe", job, "-o", "json")
    assert (found["name"], found["tags"]) == ("train-run2", {"rerun-of": f"{sweep.rpartition('/')[2]}/2"})
    again = torchx("rerun", job).stdout.strip()
    assert answer("describe", again, "-o", "json")["name"] == "train-run2"
    assert answer("status", "train", "-o", "json")["handle"] == sweep


def test_names_read_only_sweeps_that_may_match(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        torchx("run", "--name", name, "--each", "lr=1", "train.py:train")
    read: list[str] = []
    real = view.find

    def find(paths: SweepPaths) -> view.Sweep | None:
        read.append(paths.folder.name)
        return real(paths)

    monkeypatch.setattr(view, "find", find)
    with get_runner() as runner:
        assert list(runner.select(BACKEND, AppQuery(called="two")))
    assert {name[:3] for name in read} == {"two"}


def test_a_run_that_cannot_be_submitted_is_reported(folder: Path) -> None:
    (folder / "once").write_text("#!/bin/sh\nrm once\n")
    (folder / "once").chmod(0o755)
    torchx("run", "--each", "x=1,2", "utils.binary", "--entrypoint", "./once", "--", "{x}")
    assert torchx("log", "@last/2").returncode == 0
    for command in ("status @last/2", "exec @last/2 true"):
        done = torchx(*command.split())
        assert done.returncode == 1
        assert "has not started: it is FAILED: " in done.stderr


def test_the_number_of_a_run_is_inserted(folder: Path) -> None:
    each = ["--each", "lr=1,2", "--each", "out=a-{run}"]
    line = ["--env", "FOLDER=b-{run}", "utils.sh", "run=5; echo {lr} {out} c-{run} $FOLDER ${run}"]
    done = torchx("run", *each, *line)
    assert done.returncode == 0, done.stderr
    assert torchx("log", "--no-prefix", "@last").stdout == "1 a-1 c-1 b-1 5\n2 a-2 c-2 b-2 5\n"
    rows = answer("results", "@last", "-o", "json")
    assert [row["parameters"]["out"] for row in rows] == ["a-1", "a-2"]
    assert "echo 1 a-1 c-1" in torchx("run", "--dryrun", *each, *line).stdout
    assert torchx("rerun", "@last").returncode == 0
    assert torchx("log", "--no-prefix", "@last").stdout == "1 a-1 c-1 b-1 5\n2 a-2 c-2 b-2 5\n"
