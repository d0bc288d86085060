"""What a Slurm cluster is, and what it can do for an application."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from torchx.errors import AbsentError, TorchxError
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.parse import words
from torchx.schedulers.slurm.record import is_there
from torchx.schedulers.slurm.request import base_folder
from torchx.schedulers.slurm.submit import NO_MEMORY
from torchx.scheduling.findings import Finding, Verdict

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
OLDEST = (20, 11)
_OF_ONE_MACHINE = words(
    "ext2 ext3 ext4 xfs btrfs zfs tmpfs overlay ramfs f2fs jfs reiserfs bcachefs squashfs"
)


def diagnose() -> Iterator[Finding]:
    """Looks at the cluster that applications would go to; submits nothing there."""
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if len(lacking) == len(PROGRAMS):
        why = "there is no Slurm on this machine: none of its programs is on PATH"
        yield Finding("cluster", Verdict.ABSENT, why, "use a login node of the cluster")
        return
    if lacking:
        why = f"there is no `{'`, `'.join(lacking)}` on PATH"
        yield Finding("programs", Verdict.WRONG, why, "use a login node of the cluster")
        return
    try:
        config = _config(client.call(["scontrol", "show", "config"], patience=client.QUICK))
        nodes = client.call(["sinfo", "--noheader", "--format=%P|%a|%D|%T|%m"], patience=client.QUICK)
    except AbsentError as error:
        yield Finding("cluster", Verdict.ABSENT, error.message, error.hint or "")
        return
    except TorchxError as error:
        yield Finding("cluster", Verdict.WRONG, error.message, error.hint or "")
        return
    yield _release(config)
    yield partitions(nodes)
    yield memory(nodes)
    yield _accounting(config)
    yield _json()
    yield _containers()
    yield folder(base_folder({}))


def _config(told: str) -> dict[str, str]:
    lines = (line.partition("=") for line in told.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines if value}


def _release(config: dict[str, str]) -> Finding:
    name = config.get("ClusterName", "")
    found = client.version()
    what = f"{name}, Slurm {config.get('SLURM_VERSION', 'of an unknown release')}".removeprefix(", ")
    if found is not None and found < OLDEST:
        return Finding("cluster", Verdict.WRONG, what, "torchx knows Slurm from 20.11 on")
    return Finding("cluster", Verdict.GOOD, what)


def partitions(nodes: str) -> Finding:
    """Tells what can be submitted to.

    Args:
        nodes: what sinfo prints: partition, up or down, number of nodes, their state, their memory; a
            partition stands in a line for each state of its nodes.
    """
    counts: dict[str, list[int]] = {}
    for line in nodes.splitlines():
        name, up, number, state, _ = line.split("|")
        count = counts.setdefault(name, [0, 0])
        count[0] += int(number)
        if up == "up" and re.match(r"(idle|mix|alloc|comp|plan)[a-z]*[+~#%@]?$", state):
            count[1] += int(number)
    if not counts:
        return Finding("partitions", Verdict.WRONG, "none that you can see", "ask who runs the cluster")
    told = ", ".join(f"{name} ({works} of {all_} nodes work)" for name, (all_, works) in counts.items())
    if not any(works for _, works in counts.values()):
        return Finding("partitions", Verdict.WRONG, told, "why its nodes do not work: sinfo -R")
    if not any(name.endswith("*") for name in counts):
        told += "; none is the default, so -cfg partition=… is needed"
    return Finding("partitions", Verdict.GOOD, told)


def memory(nodes: str) -> Finding:
    """Tells whether memory can be asked for; of what sinfo prints, as above."""
    sizes = [
        int(found[0]) for line in nodes.splitlines() if (found := re.findall(r"\d+", line[line.rfind("|") :]))
    ]
    if max(sizes, default=0) > NO_MEMORY:
        return Finding("memory", Verdict.GOOD, f"nodes of up to {max(sizes):,} MB")
    return Finding("memory", Verdict.ABSENT, "the nodes have told Slurm of none, so none is asked for")


def _accounting(config: dict[str, str]) -> Finding:
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        age = config.get("MinJobAge", "some time").removesuffix(" sec")
        after = f"{age} s" if age.isdigit() else age
        return Finding(
            "accounting", Verdict.ABSENT, f"Slurm forgets a job {after} after its end; its files tell more"
        )
    try:
        client.call(["sacct", "--noheader", "--allocations", "--starttime=now"], patience=client.QUICK)
    except TorchxError as error:
        return Finding(
            "accounting", Verdict.WRONG, error.message, "jobs run without it; tell who runs the cluster"
        )
    return Finding("accounting", Verdict.GOOD, "sacct answers")


def _json() -> Finding:
    from torchx.schedulers.slurm.queue import in_json

    try:
        there = in_json([f"--user={os.geteuid()}"]) is not None
    except TorchxError as error:
        return Finding("JSON", Verdict.WRONG, error.message, error.hint or "")
    return Finding(
        "JSON",
        Verdict.GOOD if there else Verdict.ABSENT,
        "squeue --json" if there else "squeue has none: its text is read",
    )


def _containers() -> Finding:
    if "container-image" in (client.options_of("srun") or ()):
        return Finding("containers", Verdict.GOOD, "srun --container-image, for containers=true")
    return Finding("containers", Verdict.ABSENT, "srun has no plugin for --container-image")


def folder(path: Path) -> Finding:
    """Tells whether a folder can hold the logs of jobs.

    Args:
        path: the folder, which need not be there yet.
    """
    hint = "-cfg job_dir=… names a folder that all nodes see"
    there = next(each for each in (path, *path.parents) if is_there(each))
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        return Finding("folder", Verdict.WRONG, f"{path} cannot be made or written", hint)
    kind = _filesystem(there)
    if kind in _OF_ONE_MACHINE:
        return Finding("folder", Verdict.ABSENT, f"{path} lies on {kind}; all nodes have to see it", hint)
    return Finding("folder", Verdict.GOOD, f"{path}, on {kind or 'a file system of an unknown kind'}")


def _filesystem(path: Path) -> str:
    """Returns the kind of file system that a folder lies on, where the kernel tells it."""
    try:
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    mounts = [line.split(" ")[1:3] for line in text.splitlines()]
    real = path.resolve()
    over = [(place, kind) for place, kind in mounts if real.is_relative_to(place.replace("\\040", " "))]
    return max(enumerate(over), key=lambda each: (len(each[1][0]), each[0]))[1][1] if over else ""
