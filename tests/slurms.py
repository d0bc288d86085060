"""What the tests of jobs on a cluster need: a Slurm controller that answers, with six nodes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from torchx.schedulers.slurm.scheduler import SlurmScheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs import AppState, Resource, Role

PAIR = {"nodes": "2", "ntasks-per-node": "1"}
"""Run options for one replica on each of two nodes."""
HOW = "start one on this machine with: .ci/slurm"
NODES = 6


def what_is_missing() -> str:
    """Returns what the tests lack, with the way to get it; empty when all is there."""
    if shutil.which("sinfo") is None:
        return f"there is no Slurm on this machine; {HOW}"
    argv = ["sinfo", "--noheader", "--Node", "--states=idle,mix,alloc,comp", "--format=%N"]
    try:
        output = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return f"no Slurm controller answers; {HOW}"
    nodes = set(output.split())
    return "" if len(nodes) >= NODES else f"Slurm has {len(nodes)} nodes that work, expected {NODES}; {HOW}"


def state_folder() -> Path:
    """Returns the folder of the cluster; its nodes have own disks at `disk`, all but the first at `part`."""
    return Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).resolve().parent


def configure_no_controller(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Configures a cluster without a controller, for programs of a test that stand for those of Slurm.

    The settings of this machine may name a controller that does not run. If a program is slow, torchx probes
    that controller, and ends the program.
    """
    conf = folder / "slurm-without-controller.conf"
    conf.write_text("")
    monkeypatch.setenv("SLURM_CONF", str(conf))


def on_node(node: str, path: Path) -> Path:
    """Returns the path by which this machine reaches a path of a node."""
    pid = (state_folder() / "run" / f"slurmd.{node}.pid").read_text().strip()
    return Path(f"/proc/{pid}/root") / path.relative_to("/")


def sixth_node() -> AbstractContextManager[None]:
    """Excludes other tests from the sixth node: a job of another test would wait there, or preempt a job."""
    return _alone_on("sixth")


def fifth_node() -> AbstractContextManager[None]:
    """Excludes other tests from the fifth node, also those of another checkout: a test takes it down."""
    return _alone_on("fifth")


@contextmanager
def _alone_on(node: str) -> Iterator[None]:
    path = os.path.join(tempfile.gettempdir(), f"torchx-tests-{node}-node")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def begin_again(job: str, **changes: str) -> None:
    """Has Slurm begin a requeued job soon, without the pause of two minutes.

    Not immediately: in the second in which the former run has ended, a node rejects the job, since it has
    revoked its credential, and the job has failed.
    """
    given = [f"{name}={value}" for name, value in changes.items()]
    slurm("scontrol", "update", f"JobId={job}", "StartTime=now+3seconds", *given)


def role(command: str, name: str = "r", **changes: object) -> Role:
    """Returns a small role that runs a command of the shell."""
    settings: dict[str, object] = {"resource": Resource(1, 0, 100), **changes}
    return Role(name, "", entrypoint="sh", args=["-c", command], **settings)  # type: ignore[arg-type]


def slurm(*argv: str, text: str | None = None) -> str:
    """Runs a program of Slurm and returns what it printed."""
    return subprocess.run(argv, input=text, capture_output=True, text=True, check=True, timeout=60).stdout


def state(scheduler: SlurmScheduler, app_id: str) -> AppState:
    """Returns the state of a job."""
    described = scheduler.describe(app_id)
    return described.state if described is not None else AppState.UNKNOWN


def output(scheduler: SlurmScheduler, app_id: str, **query: object) -> bytes:
    """Returns the log of a job."""
    return b"".join(chunk.data for chunk in scheduler.log_chunks(app_id, LogQuery(**query)))  # type: ignore[arg-type]
