"""Checks of the GPUs of this machine for `torchx doctor --gpus`."""

from __future__ import annotations

from collections.abc import Mapping

from torchx.leases import gpus as leases
from torchx.scheduling.findings import Finding, Verdict
from torchx.scheduling.preflight_gpus import CheckFailedError, NotInstalledError, defects, read_gpus

REMEDY = "details: nvidia-smi -q   a reset needs the rights of root: nvidia-smi --gpu-reset -i N"


def diagnose(env: Mapping[str, str]) -> list[Finding]:
    """Returns a finding for each GPU of this machine, also those that the caller may not use.

    Memory in use is not a defect: it may be that of a job, which is named.

    Args:
        env: the environment whose PATH has ``nvidia-smi``.
    """
    try:
        found = read_gpus()
    except CheckFailedError as failure:
        missing = isinstance(failure, NotInstalledError)
        return [Finding("driver", Verdict.ABSENT if missing else Verdict.WRONG, str(failure))]
    known = {use.gpu.id: use for use in leases.survey(leases.all_gpus(env), env)}
    instances: dict[str, list[leases.GpuUse]] = {}
    for use in known.values():
        instances.setdefault(use.gpu.parent or use.gpu.id, []).append(use)
    findings = []
    for gpu in found:
        wrong = defects(gpu, least=0)
        reasons = [use.reason for use in instances.get(gpu["uuid"], ()) if use.reason]
        state = "free"
        if reasons:
            state = f"in use by {'; '.join(reasons)}"
        memory = f"{gpu.get('memory.used')} of {gpu.get('memory.total')} MiB in use"
        if wrong:
            text = "; ".join(wrong)
        else:
            text = f"{gpu['uuid']}, {memory}, {state}"
        verdict = Verdict.WRONG if wrong else Verdict.GOOD
        findings.append(Finding(f"GPU {gpu['index']}", verdict, text, REMEDY if wrong else ""))
    return findings or [Finding("GPUs", Verdict.ABSENT, "the driver has no GPU")]
