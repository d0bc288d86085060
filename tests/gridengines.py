"""What the tests of jobs on Grid Engine need: a master that answers, with three hosts."""

from __future__ import annotations

import shutil
import subprocess

from torchx.schedulers.gridengine.scheduler import GridEngineScheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs import AppState, Resource, Role

HOW = "start one on this machine with: .ci/gridengine"
HOSTS = 3


def what_is_missing() -> str:
    """Returns what the tests lack, with the way to get it; empty when all is there."""
    if shutil.which("qstat") is None:
        return f"there is no Grid Engine on this machine; {HOW}"
    try:
        output = gridengine("qstat", "-f")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return f"no Grid Engine master answers; {HOW}"
    lines = [line.split() for line in output.splitlines()]
    hosts = [line[0] for line in lines if len(line) == 5 and line[0].startswith("all.q@")]
    return "" if len(hosts) >= HOSTS else f"Grid Engine has {len(hosts)} hosts, expected {HOSTS}; {HOW}"


def gridengine(*argv: str) -> str:
    """Runs a program of Grid Engine and returns what it printed."""
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def role(command: str, name: str = "r", **changes: object) -> Role:
    """Returns a small role that runs a command of the shell."""
    settings: dict[str, object] = {"resource": Resource(1, 0, 100), **changes}
    return Role(name, "", entrypoint="sh", args=["-c", command], **settings)  # type: ignore[arg-type]


def state(scheduler: GridEngineScheduler, app_id: str) -> AppState:
    """Returns the state of a job."""
    described = scheduler.describe(app_id)
    return described.state if described is not None else AppState.UNKNOWN


def output(scheduler: GridEngineScheduler, app_id: str, **query: object) -> bytes:
    """Returns the log of a job."""
    return b"".join(chunk.data for chunk in scheduler.log_chunks(app_id, LogQuery(**query)))  # type: ignore[arg-type]
