"""The example that trains on digits: interruptions do not change its result, on all engines."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import containers
import kubejobs
import local
import pytest
import slurms
from engine import IMAGE
from fakecluster import FakeCluster
from program import ROOT
from slurms import slurm
from support import wait_until

from torchx.schedulers import get_scheduler_factories
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs import Resource
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount
from torchx.specs.run_options import CfgVal
from torchx.specs.status import AppState

pytestmark = [pytest.mark.long, pytest.mark.torch, pytest.mark.timeout(600)]

EXAMPLE = str(ROOT / "examples/digits/train.py")
PACKAGES = os.pathsep.join([str(ROOT), *(path for path in sys.path if "site-packages" in path)])
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
"""The environment of a single process without torchrun, which would start PyTorch twice."""
SMALL = ("--epochs", "6", "--batch", "64")


def alone(**fields: Any) -> Role:
    """A role of one process that trains for six epochs."""
    env = {"PYTHONPATH": PACKAGES, **ALONE, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    settings = {"image": "", "entrypoint": sys.executable, "args": [EXAMPLE, *SMALL], "env": env}
    return Role("w", **{**settings, **fields})


def under_torchrun(*arguments: str) -> Role:
    """A role of two processes under torchrun."""
    args = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]
    return Role("w", image="", entrypoint=sys.executable, args=args, env={"PYTHONPATH": PACKAGES})


@dataclass
class Trained:
    """An application that has trained.

    Attributes:
        status: its status.
        lines: its log.
    """

    status: DescribeAppResponse
    lines: list[str]

    @property
    def accuracy(self) -> str:
        """The accuracy in its log."""
        (line,) = (line for line in self.lines if "held-out accuracy" in line)
        return line

    def epochs(self, verb: str) -> list[int]:
        """Returns the epochs after which it has saved its state, or continued."""
        found = (re.search(rf"{verb} after epoch (\d+)", line) for line in self.lines)
        return [int(match[1]) for match in found if match]


def text(scheduler: Scheduler[Any], app_id: str) -> str:
    chunks = scheduler.log_chunks(app_id, LogQuery())  # type: ignore[attr-defined]
    return b"".join(chunk.data for chunk in chunks).decode()


def trained(scheduler: Scheduler[Any], app_id: str) -> Trained:
    """Waits for the end of an application."""
    assert scheduler.wait(app_id, 500.0)  # type: ignore[attr-defined]
    found = text(scheduler, app_id)
    status = scheduler.describe(app_id)
    assert status is not None and status.state is AppState.SUCCEEDED, (status, found)
    return Trained(status, found.splitlines())


@pytest.fixture(scope="module")
def accuracy() -> str:
    """The accuracy without an interruption."""
    done = trained(local.scheduler(), local.submit(alone()))
    assert done.status.run == 1
    return done.accuracy


def check_five_interruptions(done: Trained, accuracy: str) -> None:
    """The notice comes at once, so each run trains one epoch, however fast it is, and no line is lost."""
    assert done.status.run == 6
    assert done.epochs("saved") == done.epochs("continues") == [1, 2, 3, 4, 5], done.lines
    assert sum(line.endswith("training on 1 processes") for line in done.lines) == 6
    assert done.accuracy == accuracy


def test_five_interruptions_on_this_machine(accuracy: str) -> None:
    limits = {"time_limit": "1h", "notice": "3599.9s", "requeue_on": "time-limit:9"}
    done = trained(local.scheduler(), local.submit(alone(), **limits))
    check_five_interruptions(done, accuracy)


@pytest.mark.docker
def test_five_interruptions_in_containers(accuracy: str) -> None:
    """PyTorch and its Python are those of these tests, mounted."""
    folders = [ROOT, *(Path(p) for p in sys.path if "site-packages" in p)]
    folders += [Path(sys.base_prefix)] if sys.base_prefix != "/usr" else []
    mounts = [BindMount(str(folder), str(folder), read_only=True) for folder in folders]
    python = str(Path(sys.base_prefix, "bin", "python3"))
    limits: dict[str, CfgVal] = {"time_limit": "1h", "notice": "3599.5s", "requeue_on": "time-limit:9"}
    with containers.jobs_of_a_test() as jobs:
        app_id = jobs.submit(alone(image=IMAGE, entrypoint=python, mounts=mounts), **limits)
        check_five_interruptions(trained(containers.scheduler(), app_id), accuracy)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler[Any]]:
    with FakeCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
        scheduler = get_scheduler_factories()["kubernetes"]("torchx")
        yield scheduler
        scheduler.close()


def test_five_interruptions_on_kubernetes(cluster: Any, accuracy: str, tmp_path: Path) -> None:
    limits = {"time_limit": "1h", "notice": "3598s", "requeue_on": "time-limit:9"}
    app_id = kubejobs.submit(cluster, alone(image=kubejobs.IMAGE), checkpoint_dir=str(tmp_path), **limits)
    check_five_interruptions(trained(cluster, app_id), accuracy)


RANKS = """
import os, sys, time
import torch, torch.distributed as dist
from torchx.distributed import ending, init_pg, rank
init_pg("gloo")
del os.environ["TORCHX_ENDS_AT"]  # only the signal counts
step = 1
while not ending():
    time.sleep(0.001 * (1 + rank()))
    one = torch.ones(1)
    dist.all_reduce(one)  # an agreement of some ranks only would be mixed up with it
    assert one.item() == dist.get_world_size(), one
    step += 1
open(os.path.join(os.environ["TORCHX_CHECKPOINT_DIR"], str(rank())), "w").write(str(step))
dist.barrier()
"""


def test_all_ranks_in_pod_end_at_same_step(cluster: Any, tmp_path: Path) -> None:
    """The shell and the agent of torchrun, which handle no USR1, survive the notice."""
    program, folder = tmp_path / "ranks.py", tmp_path / "checkpoints"
    program.write_text(RANKS)
    folder.mkdir()
    job = under_torchrun(str(program))
    job.args, job.entrypoint = ["-c", '"$@"; exit $?', "sh", job.entrypoint, *job.args], "sh"
    job.image = kubejobs.IMAGE
    app_id = kubejobs.submit(cluster, job, time_limit="1h", notice="3598s", checkpoint_dir=str(folder))
    done = trained(cluster, app_id)
    assert done.status.run == 1
    steps = [(folder / str(rank)).read_text() for rank in range(2)]
    assert steps[0] == steps[1]


GATED = """
import os, runpy, sys, time
import torch, torch.distributed as dist
import torchx.distributed as helpers
real, go, waits = helpers.ending, sys.argv.pop(1), False
def ending():
    global waits
    while True:
        ends = real()
        free = torch.tensor([float(os.path.exists(go))])
        dist.all_reduce(free, op=dist.ReduceOp.MIN)
        if ends or free.item():
            return ends
        if dist.get_rank() == 0 and not waits:
            print("waits in run", os.environ["TORCHX_RUN"], flush=True)
        waits = True
        time.sleep(0.05)
helpers.ending = ending
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs the example, which waits after its first epoch until it is interrupted, or a file exists."""


class Job:
    """A job on the sixth node, whose runs other jobs and Slurm interrupt."""

    def __init__(self, scheduler: Scheduler[Any], app_id: str, folder: Path) -> None:
        self.scheduler, self.app_id, self.folder = scheduler, app_id, folder

    def until_waiting(self, run: int) -> None:
        """Waits until a run has trained an epoch."""
        wait_until(lambda: f"waits in run {run}\n" in text(self.scheduler, self.app_id), f"run {run}", 300.0)

    def state(self) -> str:
        """Returns its state in the queue."""
        flags = ("--noheader", "--format=%T", "--states=all", f"--jobs={self.app_id}")
        return slurm("squeue", *flags).strip()

    def preempt(self, state: str) -> None:
        """Preempts it by another job, which then ends."""
        end = self.folder / f"end-{len(list(self.folder.glob('end-*')))}"
        script = f"#!/bin/sh\nwhile [ ! -e {end} ]; do sleep 0.1; done\n"
        flags = ("--partition=urgent", "--cpus-per-task=2", "--mem=100", "--output=/dev/null")
        other = slurm("sbatch", "--parsable", *flags, text=script).strip()
        try:
            wait_until(lambda: self.state() == state, f"it is {state}", 300.0)
        finally:
            end.touch()
        ended = ("squeue", "--noheader", "--format=%T", "--states=all", f"--jobs={other}")
        wait_until(lambda: "COMPLETED" in slurm(*ended), "the other job has ended", 300.0)

    def reach_limit(self) -> None:
        """Sets its limit to the current minute: Slurm sends the notice."""
        elapsed = slurm("squeue", "--noheader", "--format=%M", f"--jobs={self.app_id}").strip()
        minutes = int(elapsed.split(":")[-2]) + 1
        slurm("scontrol", "update", f"JobId={self.app_id}", f"TimeLimit={minutes}")
        wait_until(lambda: self.state() == "PENDING", "it is requeued", 300.0)

    def begin(self, **changes: str) -> None:
        """Has Slurm begin the next run soon, see :func:`slurms.begin_again`."""
        slurms.begin_again(self.app_id, TimeLimit="60", **changes)


@pytest.mark.slurm
@pytest.mark.timeout(900)
def test_five_interruptions_on_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three preemptions by a requeue, one notice of a time limit, one suspension."""
    if reason := slurms.what_is_missing():
        pytest.skip(reason)
    program, go = tmp_path / "gated.py", tmp_path / "go"
    program.write_text(GATED)
    whole = trained(local.scheduler(), local.submit(under_torchrun(EXAMPLE, *SMALL)))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    role = under_torchrun(str(program), str(go), EXAMPLE, *SMALL)
    role.resource = Resource(2, 0, 1800)
    cfg: dict[str, CfgVal] = {"time_limit": "1h", "notice": "1m", "requeue_on": "time-limit,preempted"}
    scheduler: Any = get_scheduler_factories()["slurm"]("torchx")
    with slurms.sixth_node():
        app_id = scheduler.submit(AppDef("digits", [role]), {**cfg, "partition": "requeued"})
        try:
            job = Job(scheduler, app_id, tmp_path)
            for run, by_limit in enumerate((False, True, False, False), 1):
                job.until_waiting(run)
                if by_limit:
                    job.reach_limit()
                else:
                    job.preempt("PENDING")
                job.begin(**({"Partition": "suspended"} if run == 4 else {}))
            job.until_waiting(5)
            job.preempt("SUSPENDED")
            go.touch()
            done = trained(scheduler, app_id)
        finally:
            scheduler.kill(app_id)
    assert done.status.run == 5
    saved, continued = set(done.epochs("saved")), done.epochs("continues")
    assert saved <= set(continued), "each state that was saved is used"
    assert saved, "after the notice, there is time to save; Slurm may kill a job soon after a preemption"
    assert continued == sorted(continued)
    waits = [line.partition("waits in run ")[2] for line in done.lines if "waits in run " in line]
    assert waits == ["1", "2", "3", "4", "5"]
    assert sum("training on 2 processes" in line for line in done.lines) == 5
    assert done.accuracy == whole.accuracy
