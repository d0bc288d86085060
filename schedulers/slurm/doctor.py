"""Check the Slurm cluster for ``torchx doctor``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from torchx.errors import TorchxError
from torchx.schedulers.shared.batch.filesystems import finding_on
from torchx.schedulers.shared.batch.workspaces import base_folder
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm.submit import NO_MEMORY
from torchx.scheduling.findings import Finding, Verdict

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
OLDEST = (20, 11)


def diagnose() -> Iterator[Finding]:
    """Checks the cluster; submits nothing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if len(missing) == len(PROGRAMS):
        why = "Slurm is not installed: none of its programs is on PATH"
        yield Finding("cluster", Verdict.ABSENT, why, "use a login node of the cluster")
        return
    if missing:
        why = f"not on PATH: `{'`, `'.join(missing)}`"
        yield Finding("programs", Verdict.WRONG, why, "use a login node of the cluster")
        return
    try:
        config = _config(client.call(["scontrol", "show", "config"], timeout=client.LIST_TIMEOUT))
        nodes = client.call(["sinfo", "--noheader", "--format=%P|%a|%D|%T|%m"], timeout=client.LIST_TIMEOUT)
    except TorchxError as error:
        yield Finding.of_error("cluster", error)
        return
    yield _release(config)
    yield partitions(nodes)
    yield memory(nodes)
    yield _accounting(config)
    yield _containers()
    yield finding_on(base_folder("slurm", {}))


def _config(output: str) -> dict[str, str]:
    lines = (line.partition("=") for line in output.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines if value}


def _release(config: dict[str, str]) -> Finding:
    name = config.get("ClusterName", "")
    version = client.version()
    cluster = f"{name}, Slurm {config.get('SLURM_VERSION', 'of unknown release')}".removeprefix(", ")
    if version is not None and version < OLDEST:
        return Finding("cluster", Verdict.WRONG, cluster, "torchx requires Slurm 20.11 or newer")
    return Finding("cluster", Verdict.GOOD, cluster)


def partitions(nodes: str) -> Finding:
    """Returns a finding on the partitions.

    Args:
        nodes: output of sinfo, a line for each partition and node state: partition, up or down, number of
            nodes, node state, memory.
    """
    counts: dict[str, list[int]] = {}
    for line in nodes.splitlines():
        name, up, number, state, _ = line.split("|")
        count = counts.setdefault(name, [0, 0])
        count[0] += int(number)
        if up == "up" and re.match(r"(idle|mix|alloc|comp|plan)[a-z]*[+~#%@]?$", state):
            count[1] += int(number)
    if not counts:
        hint = "contact the cluster's administrators"
        return Finding("partitions", Verdict.WRONG, "no partition is visible to you", hint)
    summary = ", ".join(f"{name} ({works} of {all_} nodes work)" for name, (all_, works) in counts.items())
    if not any(works for _, works in counts.values()):
        return Finding("partitions", Verdict.WRONG, summary, "list the reasons with: sinfo -R")
    if not any(name.endswith("*") for name in counts):
        summary += "; no default partition, set -cfg partition=…"
    return Finding("partitions", Verdict.GOOD, summary)


def memory(nodes: str) -> Finding:
    """Returns a finding on memory: if Slurm knows the size of the nodes' memory, as printed by sinfo."""
    sizes = [
        int(numbers[0])
        for line in nodes.splitlines()
        if (numbers := re.findall(r"\d+", line[line.rfind("|") :]))
    ]
    if max(sizes, default=0) > NO_MEMORY:
        return Finding("memory", Verdict.GOOD, f"nodes of up to {max(sizes):,} MB")
    return Finding("memory", Verdict.ABSENT, "no memory is configured for the nodes, so none is requested")


def _accounting(config: dict[str, str]) -> Finding:
    if "slurmdbd" not in config.get("AccountingStorageType", ""):
        age = config.get("MinJobAge", "some time").removesuffix(" sec")
        after = f"{age} s" if age.isdigit() else age
        detail = f"Slurm forgets jobs {after} after their end; torchx then uses their files"
        return Finding("accounting", Verdict.ABSENT, detail)
    try:
        client.call(["sacct", "--noheader", "--allocations", "--starttime=now"], timeout=client.LIST_TIMEOUT)
    except TorchxError as error:
        hint = "jobs run without it; report it to the cluster's administrators"
        return Finding("accounting", Verdict.WRONG, error.message, hint)
    return Finding("accounting", Verdict.GOOD, "sacct works")


def _containers() -> Finding:
    if "container-image" in client.options_of("srun"):
        return Finding("containers", Verdict.GOOD, "srun --container-image, for containers=pyxis")
    if shutil.which("apptainer"):
        return Finding("containers", Verdict.GOOD, "apptainer, for containers=apptainer")
    return Finding("containers", Verdict.ABSENT, "srun has no plugin for --container-image; no apptainer")
