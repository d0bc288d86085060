"""Sweeps in tests: a component whose runs write a line, and their conductors."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from support import wait_until

from torchx.machine import processes
from torchx.machine.processes import Process
from torchx.specs.handles import parse_app_handle
from torchx.sweeps import progress
from torchx.sweeps.paths import SweepPaths, paths_of

COMPONENT = '''
import torchx.specs as specs

def train(lr: float, seed: int = 0, script: str = "echo loss=$LR seed=$SEED") -> specs.AppDef:
    """Trains.

    Args:
        lr: learning rate
        seed: seed
        script: what a run does
    """
    env = {"LR": str(lr), "SEED": str(seed)}
    role = specs.Role("train", "", entrypoint="sh", args=["-c", script], env=env)
    return specs.AppDef("train", [role])
'''
"""The component of the tests: `train.py:train`."""


def write_component(folder: Path) -> Path:
    """Writes the component's file."""
    path = folder / "train.py"
    path.write_text(COMPONENT)
    return path


def paths(handle: str) -> SweepPaths:
    """The files of a sweep."""
    return paths_of(parse_app_handle(handle).app_id)


def entries(handle: str, kind: str) -> list[dict[str, Any]]:
    """The entries of a kind in the journal of a sweep, without runs that are submitted and wait."""
    found: list[dict[str, Any]] = []
    progress.read(paths(handle), lambda entry: found.append(entry) if entry["e"] == kind else None)
    return [entry for entry in found if not entry.get("waits")]


def conductor(handle: str) -> Process:
    """The last conductor of a sweep."""
    wait_until(lambda: entries(handle, "conductor"), "a conductor has begun")
    last = entries(handle, "conductor")[-1]
    return Process(last["pid"], last["start"])


def kill_conductor(handle: str) -> bool:
    """Kills the conductor of a sweep; returns False if it has ended before."""
    process = conductor(handle)
    killed = processes.send(process, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(process), "the conductor has ended")
    return killed


def parameters(handle: str) -> list[dict[str, str]]:
    """The parameters of the runs, in order."""
    lines = paths(handle).plan.read_text().splitlines()[1:]
    return [json.loads(line)["p"] for line in lines]
