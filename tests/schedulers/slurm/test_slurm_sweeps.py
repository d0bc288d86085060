"""Sweeps and `--after` on a real cluster: job arrays and dependencies, without a process of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import answer, torchx
from slurms import slurm
from support import wait_until
from sweepruns import check_runs_are_names

from torchx.errors import TorchxError
from torchx.runner import get_runner
from torchx.specs.handles import parse_app_handle
from torchx.sweeps import progress
from torchx.sweeps.paths import known, paths_of

pytestmark = pytest.mark.slurm

COMPONENT = '''
import torchx.specs as specs

def train(seed: int, script: str, retries: int = 0, cpus: int = 1) -> specs.AppDef:
    """Trains.

    Args:
        seed: seed
        script: the commands of a run
        retries: maximum number of retries
        cpus: the number of CPUs
    """
    role = specs.Role("train", "", entrypoint="sh", args=["-c", script], env={"SEED": str(seed)},
                      max_retries=retries, resource=specs.Resource(cpus, 0, 100))
    return specs.AppDef("train", [role])
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(COMPONENT)
    yield tmp_path
    with get_runner() as runner:
        for name in known():
            runner.delete(f"sweep://torchx/{name}")


def entries(handle: str, kind: str) -> list[dict[str, Any]]:
    """The entries of a kind in the journal of a sweep."""
    found: list[dict[str, Any]] = []
    paths = paths_of(parse_app_handle(handle).app_id)
    progress.read(paths, lambda entry: found.append(entry) if entry["e"] == kind else None)
    return found


def run(*words: str) -> str:
    done = torchx("run", "-s", "slurm", "-d", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def sweep(seeds: str, script: str, *flags: str, end: tuple[str, ...] = ()) -> str:
    return run("--each", f"seed={seeds}", *flags, "train.py:train", "--script", script, *end)


def runs_of(handle: str) -> dict[int, tuple[str, int | None]]:
    return {row["run"]: (row["state"], row["exit_code"]) for row in answer("results", handle, "-o", "json")}


def test_a_sweep_is_one_array(folder: Path) -> None:
    """One handle for all runs, failed ones again, new ones added; no conductor."""
    script = "echo seed $SEED; echo $SEED >> seen; test $SEED != 2 || test -e fixed"
    handle = sweep("1..3", script, "--at-once", "2")
    assert torchx("wait", handle).returncode == 1
    assert runs_of(handle) == {1: ("SUCCEEDED", 0), 2: ("FAILED", 1), 3: ("SUCCEEDED", 0)}
    assert torchx("log", "--no-prefix", f"{handle}/3").stdout == "seed 3\n"
    assert entries(handle, "conductor") == []
    (queued,) = entries(handle, "queue")
    array = queued["ids"][0][1].partition("_")[0]
    assert queued["ids"] == [[n, f"{array}_{n}"] for n in (1, 2, 3)]
    assert "2  FAILED" in torchx("status", handle).stdout
    listed = {row["handle"] for row in answer("list", "-o", "json")}  # with jobs of others
    assert handle in listed
    assert not any(f"/{array}_" in each for each in listed)
    row = next(row for row in answer("results", handle, "-o", "json") if row["run"] == 2)
    assert row["handle"] == f"slurm://torchx/{array}_2"
    assert answer("status", "-o", "json", row["handle"])["state"] == "FAILED"

    (folder / "fixed").touch()
    assert torchx("rerun", "--failed", "-d", handle).returncode == 0
    assert torchx("wait", handle).returncode == 0
    more = sweep("1..4", script, "--at-once", "2")
    assert more == handle
    assert torchx("wait", handle).returncode == 0
    assert sorted((folder / "seen").read_text().split()) == ["1", "2", "2", "3", "4"]
    ends = [entry["n"] for entry in entries(handle, "end")]
    assert sorted(ends) == [1, 2, 2, 3, 4]


def test_a_task_is_a_job_with_its_own_life(folder: Path) -> None:
    """One run is cancelled, entered, retried and requeued like any job; the others are not affected."""
    script = 'echo "try $TORCHX_ATTEMPT"; test "$SEED" != 1 || test "$TORCHX_ATTEMPT" = 2 || exit 5; ' + (
        "until test -e go; do sleep 0.1; done"
    )
    handle = sweep("1..3", script, end=("--retries", "1"))
    (queued,) = entries(handle, "queue")
    one, two, three = (f"slurm://torchx/{app_id}" for _, app_id in queued["ids"])

    def log(handle: str) -> str:
        return torchx("log", "--no-prefix", handle).stdout

    wait_until(lambda: "try 2" in log(one) and all("try 1" in log(each) for each in (two, three)), "all run")
    done = torchx("exec", three, "--", "sh", "-c", "echo $SEED $TORCHX_JOB_ID")
    assert (done.returncode, done.stdout) == (0, f"3 {three}\n"), done.stderr
    assert torchx("cancel", two).returncode == 0
    assert answer("status", "-o", "json", two)["state"] == "CANCELLED"
    assert answer("status", "-o", "json", three)["state"] == "RUNNING"
    slurm("scontrol", "requeue", parse_app_handle(three).app_id)
    wait_until(lambda: "try 2" in log(three), "it runs again")
    (folder / "go").touch()
    assert torchx("wait", handle).returncode == 1
    states = runs_of(handle)
    assert [states[n][0] for n in (1, 2, 3)] == ["SUCCEEDED", "CANCELLED", "SUCCEEDED"]


def test_tasks_are_named_by_their_runs(folder: Path) -> None:
    check_runs_are_names(folder, "-s", "slurm")


def test_a_submission_that_is_killed_is_completed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    slow = folder / "bin/sbatch"
    wait = f"touch {folder}/called; until test -e {folder}/go; do sleep 0.05; done"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *--array*) {wait};; esac\nexec /usr/bin/env -S sbatch "$@"\n')
    slow.write_text(slow.read_text().replace("/usr/bin/env -S sbatch", slurm("which", "sbatch").strip()))
    slow.chmod(0o755)
    words = ["run", "-s", "slurm", "-d", "--each", "seed=1,2", "train.py:train", "--script", "echo x >> seen"]
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-m", "torchx_cli", *words], env={**os.environ, "PATH": path}, cwd=folder
    )
    wait_until((folder / "called").exists, "sbatch was called")
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder / "go").touch()
    (name,) = known()
    handle = f"sweep://torchx/{name}"
    assert torchx("wait", handle).returncode == 0
    assert (folder / "seen").read_text() == "x\nx\n"
    assert sweep("1,2", "echo x >> seen") == handle
    assert (folder / "seen").read_text() == "x\nx\n"
    assert len(known()) == 1


def test_dependencies_of_the_cluster(folder: Path) -> None:
    """The reason for waiting is shown; a condition that cannot be met ends the runs with the reason."""
    first = run("utils.sh", "until test -e go; do sleep 0.1; done; exit 3")
    after = {
        condition: run("--after", f"{first}:{condition}", "utils.sh", f"echo {condition} >> seen")
        for condition in ("ok", "any", "failed")
    }
    chained = run("--after", after["any"], "--after", f"{after['failed']}:any", "utils.sh", "echo chained")
    never = run("--after", after["ok"], "utils.sh", "echo never >> seen")
    status = answer("status", "-o", "json", after["ok"])
    assert status["state"] == "PENDING"
    assert all(entries(handle, "conductor") == [] for handle in (*after.values(), chained, never))
    (folder / "go").touch()
    assert torchx("wait", chained).returncode == 0
    assert torchx("wait", never).returncode == 1
    assert sorted((folder / "seen").read_text().split()) == ["any", "failed"]
    status = answer("status", "-o", "json", after["ok"])
    assert status["state"] == "CANCELLED"
    assert "its dependencies can never be satisfied" in status["msg"]
    ended = run("--after", f"{first}:failed", "utils.sh", "echo ended >> seen")
    assert torchx("wait", ended).returncode == 0
    unmet = run("--after", first, "utils.sh", "echo unmet >> seen")
    assert torchx("wait", unmet).returncode == 1
    assert "which is FAILED" in answer("status", "-o", "json", unmet)["msg"]
    assert entries(unmet, "queue") == []
    assert torchx("run", "-s", "slurm", "--after", "slurm://torchx/99999999", "utils.sh", "true").returncode
    with get_runner() as runner:
        runner.delete(first)


def test_runs_that_differ_in_resources_have_a_process(folder: Path) -> None:
    handle = run("--each", "cpus=1,2", "train.py:train", "--seed", "1", "--script", "echo run")
    assert torchx("wait", handle).returncode == 0
    assert entries(handle, "conductor")
    local = torchx("run", "-d", "-s", "local_cwd", "utils.sh", "true").stdout.strip()
    after = run("--after", local, "utils.sh", "echo after")
    wait_until(lambda: entries(after, "conductor"), "it has a process")
    assert torchx("wait", after).returncode == 0


def test_a_sweep_is_cancelled_and_its_limit_changes(folder: Path) -> None:
    handle = sweep("1..4", "exec sleep 600", "--at-once", "1")

    def running() -> int:
        return sum(state == "RUNNING" for state, _ in runs_of(handle).values())

    wait_until(lambda: answer("status", "-o", "json", handle)["state"] == "RUNNING", "it runs")
    assert running() == 1
    assert sweep("1..4", "exec sleep 600", "--at-once", "3") == handle
    wait_until(lambda: answer("status", "-o", "json", handle) and running() == 3, "three run")
    assert torchx("cancel", handle).returncode == 0
    states = {state for state, _ in runs_of(handle).values()}
    assert (states, answer("status", "-o", "json", handle)["state"]) == ({"CANCELLED"}, "CANCELLED")
    ends = [entry["n"] for entry in entries(handle, "end")]
    assert sorted(ends) == sorted(set(ends))


def test_a_rejection_by_the_cluster_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejection by Slurm leaves nothing."""
    words = ("--each", "seed=1,2", "-cfg", "partition=none", "train.py:train", "--script", "true")
    done = torchx("run", "-s", "slurm", "-d", *words)
    assert done.returncode == 1
    assert "Slurm rejected the job" in done.stderr
    assert known() == []
    with pytest.raises(TorchxError), get_runner() as runner:
        runner.sweep("train.py:train", {"seed": [1, 2]}, "slurm", ["--script", "true"], {"partition": "none"})
