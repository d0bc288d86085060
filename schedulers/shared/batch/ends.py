"""The ends of jobs, by names that are states of Slurm, with their messages and causes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from torchx.specs.status import EndCause

NEVER_SATISFIED = "DependencyNeverSatisfied"
"""Slurm's reason for a job that can never start, as a job that it depends on has not ended as required."""

SCRIPT_KILLED = "RaisedSignal"
"""Slurm's reason for a job whose batch script was killed; also for one of which a step was killed."""

NO_FOLDER, FULL_DISK = 73, 74
"""Exit codes of a script without a folder of the job that it can use, and of one that cannot write to it."""

FAILURES = {
    "FAILED": "",
    "TIMEOUT": "time limit reached",
    "NODE_FAIL": "a node failed",
    "PREEMPTED": "preempted by a job of higher priority",
    "BOOT_FAIL": "a node could not be started",
    "OUT_OF_MEMORY": "out of memory",
    "DEADLINE": "its deadline passed before it could end",
    "LAUNCH_FAILED": "it could not be started on its nodes",
    "RECONFIG_FAIL": "a node could not be set up",
    SCRIPT_KILLED: "its batch script was killed",
}
"""Failure messages by Slurm state."""

CAUSES = {
    "TIMEOUT": EndCause.TIME_LIMIT,
    "DEADLINE": EndCause.TIME_LIMIT,
    "NODE_FAIL": EndCause.NODE_LOST,
    "BOOT_FAIL": EndCause.NODE_LOST,
    "RECONFIG_FAIL": EndCause.NODE_LOST,
    "PREEMPTED": EndCause.PREEMPTED,
    "OUT_OF_MEMORY": EndCause.OUT_OF_MEMORY,
    "LAUNCH_FAILED": EndCause.NOT_STARTED,
    NEVER_SATISFIED: EndCause.DEPENDENCY_FAILED,
    SCRIPT_KILLED: EndCause.SUPERVISOR_LOST,
}
"""Causes by the state or the reason that Slurm reports."""


def why_no_folder(folders: Sequence[Path], node: str) -> str:
    """Returns the message of a job whose script has found none of its folders.

    Args:
        folders: the folders of the job.
        node: the node of the script.
    """
    which = " nor ".join(str(folder.parent.parent) for folder in folders)
    if len(folders) > 1:
        one = f"neither {which} is"
    else:
        one = f"{which} is not"
    return f"{one} shared with {node}; set -cfg job_dir=FOLDER shared with all nodes"


def full_disk(folder: Path) -> str:
    """Returns the message about a full disk of a folder; empty if it has room, or cannot be read here."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return ""
    if room.f_bavail or not room.f_blocks:
        return ""
    return f"the disk of {folder} is full"
