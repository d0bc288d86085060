"""Check the Grid Engine cluster for ``torchx doctor``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from torchx.errors import TorchxError
from torchx.schedulers.gridengine import commands
from torchx.schedulers.gridengine.jobs import ENGINE
from torchx.schedulers.shared.batch.filesystems import finding_on
from torchx.schedulers.shared.batch.workspaces import base_folder
from torchx.scheduling.findings import Finding, Verdict

PROGRAMS = ("qsub", "qstat", "qdel", "qconf", "qrsh")
_HINT = "use a submit host of the cluster, or source its settings.sh"


def diagnose() -> Iterator[Finding]:
    """Checks the cluster; submits nothing."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if len(missing) == len(PROGRAMS):
        why = "Grid Engine is not installed: none of its programs is on PATH"
        yield Finding("cluster", Verdict.ABSENT, why, _HINT)
        return
    if missing:
        yield Finding("programs", Verdict.WRONG, f"not on PATH: `{'`, `'.join(missing)}`", _HINT)
        return
    try:
        hosts = commands.call(["qstat", "-f"])
        environments = commands.call(["qconf", "-spl"]).split()
    except TorchxError as error:
        yield Finding.of_error("cluster", error)
        return
    yield queues(hosts)
    yield _environments([_rules(name) for name in environments])
    yield finding_on(base_folder(ENGINE, {}))


def queues(text: str) -> Finding:
    """Returns a finding on the queues, from the output of ``qstat -f``."""
    lines = [line.split() for line in text.splitlines()]
    parts = [line for line in lines if len(line) >= 5 and "@" in line[0]]
    good = [line for line in parts if len(line) == 5]
    summary = f"{len(good)} of {len(parts)} queue instances work"
    if not good:
        return Finding("queues", Verdict.WRONG, summary, "list the reasons with: qstat -f -explain aE")
    slots = sum(int(line[2].rpartition("/")[2]) for line in good if re.fullmatch(r"[0-9/]+", line[2]))
    return Finding("queues", Verdict.GOOD, f"{summary}, {slots} slots")


def _rules(name: str) -> tuple[str, dict[str, str]]:
    pairs = (line.split(None, 1) for line in commands.call(["qconf", "-sp", name]).splitlines())
    return name, {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _environments(found: list[tuple[str, dict[str, str]]]) -> Finding:
    """Returns a finding on the parallel environments: which of them can start replicas on several hosts."""
    able = [
        f"{name} ({rules.get('allocation_rule')})"
        for name, rules in found
        if rules.get("control_slaves") == "TRUE"
    ]
    if able:
        return Finding("pe", Verdict.GOOD, f"set -cfg pe=… to one of: {', '.join(able)}")
    why = "no parallel environment has control_slaves TRUE: a job runs on one host, without torchx exec"
    return Finding("pe", Verdict.ABSENT, why, "contact the cluster's administrators")
