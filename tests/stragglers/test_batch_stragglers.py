"""Slow ranks of batch jobs: the programs on the nodes, and jobs on real clusters."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gridengines
import pytest
import slurms
from program import ROOT, answer, torchx
from stragglers.programs import ALONE
from support import wait_until

from torchx.schedulers.gridengine.scheduler import create_scheduler as create_gridengine
from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.stragglers.files import files
from torchx.schedulers.shared.batch.stragglers.node import steps, stragglers
from torchx.schedulers.slurm.scheduler import create_scheduler as create_slurm
from torchx.specs.app import AppDef, Role

PLACE = "shared/batch/stragglers"


def role(count: int = 3) -> Role:
    return Role(
        "w",
        "",
        entrypoint=sys.executable,
        args=["-c", ALONE],
        num_replicas=count,
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """The folder of a job of three replicas, with the programs of its nodes."""
    node = tmp_path / ".node"
    node.mkdir()
    for name, text in files(AppDef("a", [role()]), {"straggler": 10}).items():
        (node / name).write_text(text)
    (node / "agent.py").write_text(node_file("agent.py"))
    yield tmp_path
    assert not [path for path in Path("/dev/shm").glob("torchx-*") if _is_of(path, os.getpid())]


def _is_of(path: Path, pid: int) -> bool:
    return path.name.split("-")[1] == str(pid)


def publish(job: Path, replica: int, attempt: int, step: int, pace: float, now: float) -> None:
    """Writes the last steps of a replica, as its agent does."""
    folder = job / "w" / str(replica) / f"attempt-{attempt}"
    folder.mkdir(parents=True, exist_ok=True)
    last = [[now - pace * (step - n), n] for n in range(max(step - 15, 0), step + 1)]
    part = folder / "part"
    part.write_text("".join(f"0 {at} {n}\n" for at, n in last))
    part.rename(folder / "steps")


def start(job: Path, python: str, script: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([python, "-I", "-S", str(job / ".node" / "stragglers.py"), str(job), str(script)])


@pytest.mark.parametrize("name", ["python3.8", ""])
def test_steps_are_compared_until_the_script_ends(name: str, job: Path) -> None:
    """With the oldest Python of nodes too, if this machine has it."""
    python = (name and shutil.which(name)) or sys.executable
    if subprocess.run([python, "-c", ""], capture_output=True).returncode:
        python = sys.executable
    script = subprocess.Popen(["sleep", "600"])
    helper = start(job, python, script.pid)
    begin, found = time.monotonic(), job / "steps.json"

    def is_found() -> bool:
        age = time.monotonic() - begin
        for replica in range(3):
            pace = 0.1 if replica == 1 else 0.05
            publish(job, replica, 1, int(age / pace), pace, time.time())
        return found.exists() and json.loads(found.read_text())["reports"] != []

    wait_until(is_found, "the slow replica is found")
    data = json.loads(found.read_text())
    assert data["reports"][0]["replica"] == 1
    assert data["roles"][0]["stragglers"] == ["w/1"]
    assert found.stat().st_mode & 0o777 == 0o600
    helper.kill()
    helper.wait()
    helper = start(job, python, script.pid)  # after a requeue the reports stay
    publish(job, 0, 1, 100_000, 0.05, time.time())
    wait_until(lambda: json.loads(found.read_text())["roles"][0]["slowest"]["behind"] >= 0, "it runs")
    assert json.loads(found.read_text())["reports"] == data["reports"]
    script.kill()
    script.wait()
    assert helper.wait(30) == 0


def test_an_agent_publishes_beats_and_lines(job: Path) -> None:
    """The memory on the node's disk is removed at the end."""
    cfg = {"straggler": 10, "progress": r"step (\d+)"}
    (job / ".node" / "steps.py").write_text(files(AppDef("a", [role()]), cfg)["steps.py"])
    place = job / "w" / "0"
    argv = [sys.executable, "-I", "-S", str(job / ".node" / "agent.py"), str(place), "1", "", "", "5", "", ""]
    code = (
        "import os, time\nfrom torchx.distributed import beat\nprint('[rank5]: step 8', flush=True)\n"
        "for n in range(20): beat(step=n); time.sleep(0.1)\nprint(os.environ['TORCHX_STEPS'])"
    )
    agent = subprocess.Popen(argv, stdin=subprocess.PIPE, env={**os.environ, "LOCAL_RANK": "2"})
    assert agent.stdin is not None
    texts = [f"PYTHONPATH={ROOT}", "--", sys.executable, "-c", code]
    agent.stdin.write("".join(f"{text}\0" for text in texts).encode())
    agent.stdin.close()
    assert agent.wait(60) == 0
    attempt = place / "attempt-1"
    rows = [line.split() for line in (attempt / "steps").read_text().splitlines()]
    assert [int(step) for rank, _, step in rows if rank == "2"] == list(range(4, 20))
    assert abs(float(rows[0][1]) - time.time()) < 60
    assert [step for rank, _, step in rows if rank == "5"] == ["8"]
    offset, _, path = (attempt / "stdout.log").read_text().split()[-1].partition(":")
    assert (offset, Path(path).exists()) == ("0", False)


def test_steps_never_fail_a_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program may remove the memory, and a search may take too long."""
    monkeypatch.setattr(steps, "LONGEST_SEARCH", 0.001)
    recorded = steps.Steps(str(tmp_path), "(a+)+ (b)", {})
    recorded.feed(1, b"a" * 18 + b"\nafter\n")
    assert recorded.pattern is None
    recorded.feed(1, b"more\n")
    Path(recorded.name).unlink()
    recorded.close()


def test_a_damaged_line_of_steps_is_left_out(tmp_path: Path) -> None:
    attempt = tmp_path / "attempt-1"
    attempt.mkdir()
    (attempt / "steps").write_text("0 1.5 7\nx y z\n0\n")
    assert stragglers.beats_of(str(tmp_path)) == {0: [(1.5, 7)]}


def test_a_job_without_the_option_has_no_programs() -> None:
    assert files(AppDef("a", [role()]), {}) == {}


@pytest.mark.slurm
def test_a_slow_replica_of_a_slurm_job(tmp_path: Path) -> None:
    scheduler = create_slurm("torchx")
    app = AppDef("slow", [role()])
    app_id = scheduler.submit(app, {"job_dir": str(tmp_path), "straggler": 10, "time": "5"})
    try:
        check(f"slurm://torchx/{app_id}")
    finally:
        scheduler.delete(app_id)
    assert slurms


@pytest.mark.gridengine
def test_a_slow_replica_of_a_grid_engine_job() -> None:
    scheduler = create_gridengine("torchx")
    app_id = scheduler.submit(AppDef("slow", [role()]), {"pe": "mpi", "straggler": 10})
    try:
        check(f"gridengine://torchx/{app_id}")
        usage = scheduler.usage(app_id)
        assert usage is not None
        assert [each.name for each in usage.replicas] == ["w/0", "w/1", "w/2"]
        assert all(each.latest is not None for each in usage.replicas)
        assert (usage.peak_memory or 0) > 1 << 20
        stacks = torchx("stacks", f"gridengine://torchx/{app_id}").stdout
        assert "w/0" in stacks
        assert "pid" in stacks
    finally:
        scheduler.delete(app_id)
    assert gridengines


def check(handle: str) -> None:
    def steps() -> list[dict[str, Any]]:
        return list(answer("status", "-o", "json", handle)["steps"])

    wait_until(lambda: any(each["stragglers"] for each in steps()), "it is found", 240)
    assert [each["stragglers"] for each in steps()] == [["w/1"]]
    assert "slowest w/1: " in torchx("status", handle).stdout
    events = [json.loads(line) for line in torchx("events", "-o", "json", handle).stdout.splitlines()]
    (event,) = [each for each in events if each["kind"] == "straggler"]
    assert (event["role"], event["replica"]) == ("w", 1)
