"""What the tests of jobs on a cluster need: a Slurm controller that answers, with four nodes and one more."""

from __future__ import annotations

import shutil
import subprocess

HOW = "start one on this machine with: .ci/slurm"
NODES = 5


def what_is_missing() -> str:
    """Returns what the tests lack, with the way to get it; empty when all is there."""
    if shutil.which("sinfo") is None:
        return f"there is no Slurm on this machine; {HOW}"
    argv = ["sinfo", "--noheader", "--Node", "--states=idle,mix,alloc,comp", "--format=%N"]
    try:
        told = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return f"no Slurm controller answers; {HOW}"
    nodes = set(told.split())
    return "" if len(nodes) >= NODES else f"Slurm has {len(nodes)} nodes that work, expected {NODES}; {HOW}"
