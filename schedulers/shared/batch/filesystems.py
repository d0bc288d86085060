"""The types of file systems: whether other machines can share a folder."""

from __future__ import annotations

import os
from pathlib import Path

from torchx.masking.names import name_set
from torchx.schedulers.shared.batch.paths import path_exists
from torchx.scheduling.findings import Finding, Verdict

LOCAL = name_set("ext2 ext3 ext4 xfs btrfs zfs tmpfs overlay ramfs f2fs jfs reiserfs bcachefs squashfs")
"""Types of file systems on a disk of this machine, which it may still export to others."""


def existing_parent(path: Path) -> Path:
    """Returns a folder, or its first parent that exists."""
    return next(folder for folder in (path, *path.parents) if path_exists(folder))


def type_of(path: Path) -> str:
    """Returns the type of the file system of a folder, or an empty string if unknown."""
    try:
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    mounts = [line.split(" ")[1:3] for line in text.splitlines()]
    real = path.resolve()
    containing = [(place, kind) for place, kind in mounts if real.is_relative_to(place.replace("\\040", " "))]
    if containing:
        return max(enumerate(containing), key=lambda item: (len(item[1][0]), item[0]))[1][1]
    return ""


def finding_on(path: Path) -> Finding:
    """Returns a finding on the folder for the logs of jobs.

    Args:
        path: the folder, which need not exist.
    """
    hint = "for jobs on other nodes, set -cfg job_dir=… to a folder shared with all nodes"
    parent = existing_parent(path)
    if not os.access(parent, os.W_OK | os.X_OK) or not parent.is_dir():
        return Finding("folder", Verdict.WRONG, f"{path} cannot be created or is not writable", hint)
    kind = type_of(parent)
    if kind in LOCAL:
        return Finding("folder", Verdict.ABSENT, f"{path} is on {kind}, a local disk of this node", hint)
    return Finding("folder", Verdict.GOOD, f"{path}, on {kind or 'an unknown file system'}")
