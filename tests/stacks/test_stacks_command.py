"""The command `torchx stacks` on local jobs, in containers and on clusters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurms
from containers import Jobs, jobs_of_a_test
from containers import sh as in_container
from local import handle, scheduler, submit
from program import torchx
from support import wait_until

from torchx.runner import get_runner
from torchx.schedulers.slurm.scheduler import create_scheduler
from torchx.scheduling.stacks import MAIN, ProcessStack
from torchx.specs.app import AppDef, Role

CODE = """
import os, threading
def wait_for_peers(): threading.Event().wait()
def read_data(): os.read(os.pipe()[0], 1)
wait_for_peers() if os.environ["RANK"] != "1" else read_data()
"""

JOB = {"TORCHX_JOB_ID": "${app_id}"}
"""A runner sets it."""


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with jobs_of_a_test() as jobs:
        yield jobs


def ranks(count: int = 3, name: str = "w", python: str = sys.executable, **fields: object) -> Role:
    role = Role(name, image="", entrypoint=python, args=["-c", CODE], num_replicas=count)
    role.env["RANK"] = "${replica_id}"
    for field, value in fields.items():
        setattr(role, field, value)
    return role


@pytest.fixture
def app_id() -> Iterator[str]:
    app_id = submit(ranks())
    yield app_id
    scheduler().kill(app_id)


def until_settled(full: str, count: int = 3) -> list[ProcessStack]:
    """The processes of the ranks, when all of them hang."""

    def read() -> list[ProcessStack]:
        with get_runner() as runner:
            processes = [p for p in runner.stacks(full).processes if p.kind == MAIN]
        ranks = [p for p in processes if p.rank is not None]
        found = [p for p in ranks if p.wait == "futex" or p.wait.startswith("read of pipe:")]
        return found if len(found) == count == len(processes) else []

    return wait_until(read, "all ranks hang")


def test_the_rank_that_differs_comes_first(app_id: str) -> None:
    until_settled(handle(app_id))
    lines = torchx("stacks", app_id).stdout.splitlines()
    assert lines[0].startswith("rank 1  (1 of 3, pid ")
    assert lines[1].startswith("    read_data <string>:4 <- <module> <string>:5")
    assert lines[3].startswith("ranks 0,2  (2 of 3 identical, pids ")
    assert "wait_for_peers <string>:3" in "".join(lines[4:])
    data = json.loads(torchx("stacks", f"{app_id}/w/1", "-o", "json").stdout)
    assert data["handle"] == handle(app_id)
    assert [(p["replica"], p["rank"]) for p in data["processes"]] == [(1, 1)]
    data = json.loads(torchx("stacks", f"{app_id}/w", "--rank", "0,2-5", "--json").stdout)
    assert [p["rank"] for p in data["processes"]] == [0, 2]
    none = torchx("stacks", app_id, "--rank", "9")
    assert (none.returncode, none.stdout, none.stderr) == (1, "", "no matching processes\n")


def test_watch_repeats_until_the_end() -> None:
    app_id = submit(ranks(1, args=["-c", "input()"], entrypoint="sleep"), name="short")
    scheduler().cancel(app_id)
    ended = torchx("stacks", app_id)
    assert scheduler().wait(app_id, 120)
    ended = torchx("stacks", app_id)
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (1, f"error: {app_id} has ended")
    app_id = submit(Role("w", image="", entrypoint="sleep", args=["3"]))
    done = torchx("stacks", app_id, "--watch", "0.1")
    assert done.returncode == 0
    assert done.stdout.count("\n--- ") >= 1, "several rounds"
    app_id = submit(Role("w", image="", entrypoint="sleep", args=["1"]))
    lines = torchx("stacks", app_id, "--watch", "0.1", "--json").stdout.splitlines()
    assert all(json.loads(line)["handle"].endswith(app_id) for line in lines), "one object per line"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "x"], "`x` in --rank is not a rank"),
        (["--watch", "soon"], "--watch takes seconds"),
        (["-o", "xml"], "-o takes"),
    ],
)
def test_wrong_flags_are_rejected(arguments: list[str], message: str) -> None:
    done = torchx("stacks", "no-such-app", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_unknown_applications_and_replicas(app_id: str) -> None:
    assert "there is no application" in torchx("stacks", "local_cwd://torchx/none").stderr
    done = torchx("stacks", f"{app_id}/w/7")
    assert (done.returncode, f"{app_id} has no replica w/7" in done.stderr) == (1, True)


@pytest.mark.docker
def test_stacks_in_containers(jobs: Jobs) -> None:
    """The image has Python without py-spy: the kernel's view remains, and the hint."""
    role = in_container('exec python3 -c "$CODE"', 2, env={**JOB, "CODE": CODE, "RANK": "${replica_id}"})
    app_id = jobs.submit(role)
    full = f"local_docker://torchx/{app_id}"
    found = until_settled(full, 2)
    assert [(p.role, p.replica, p.rank, p.wait.partition(":")[0]) for p in found] == [
        ("w", 0, 0, "futex"),
        ("w", 1, 1, "read of pipe"),
    ]
    done = torchx("stacks", f"{full}/w/1")
    assert done.stdout.startswith("rank 1  (pid ")
    assert "    py-spy is not installed" in done.stdout
    assert "note: for Python stacks: pip install " in done.stdout


@pytest.mark.docker
def test_containers_without_python_are_named(jobs: Jobs) -> None:
    app_id = jobs.submit(in_container("rm -f /usr/bin/python*; echo gone; sleep 60"))
    wait_until(lambda: "gone" in torchx("log", f"local_docker://torchx/{app_id}").stdout, "it has no Python")
    done = torchx("stacks", f"local_docker://torchx/{app_id}")
    assert (done.returncode, done.stderr) == (1, "no matching processes\n")
    assert done.stdout == "note: w/0: no Python to take the stacks with\n"


@pytest.mark.slurm
def test_stacks_on_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    slurm = create_scheduler("torchx")
    roles = []
    for name in ("a", "b"):
        role = slurms.role("", name, num_replicas=2, env={"RANK": "${replica_id}"})
        role.entrypoint, role.args = sys.executable, ["-c", CODE]
        roles.append(role)
    roles[1].metadata = {"slurm": {"nodes": "2"}}
    app_id = slurm.submit(AppDef("job", roles), {"job_dir": str(tmp_path), "time": "5"})
    try:
        full = f"slurm://torchx/{app_id}"
        wait_until(lambda: slurms.state(slurm, app_id).name == "RUNNING", "it runs")
        found = until_settled(full, 4)
        assert [(p.role, p.replica, p.rank) for p in found] == [(n, r, r) for n in "ab" for r in (0, 1)]
        assert {p.host for p in found} <= {f"node{n}" for n in range(1, slurms.NODES + 1)}
        assert len({p.host for p in found if p.role == "b"}) == 2
        lines = torchx("stacks", f"{full}/b").stdout.splitlines()
        assert lines[0].startswith("rank 0  (1 of 2, pid ")
        assert "    read_data <string>:4 <- <module> <string>:5" in lines
    finally:
        slurm.kill(app_id)
