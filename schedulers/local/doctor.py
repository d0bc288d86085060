"""What local jobs need of this machine: a state home, a Python, room on the disk; and what it has to give."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from torchx.errors import TorchxError
from torchx.jobs.paths import state_home, user_home
from torchx.machine import processes
from torchx.schedulers.shared.gpus import visible_gpus
from torchx.scheduling.findings import Finding, Verdict

LITTLE = 1 << 30
"""Bytes of free room below which logs may soon be lost."""


def diagnose() -> Iterator[Finding]:
    """Looks at all of it; starts nothing, and leaves nothing behind."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", Verdict.GOOD, f"{version} at {sys.executable}")
    lacking = processes.missing()
    if lacking is not None:
        yield Finding("system", Verdict.ABSENT, f"jobs of this machine need {lacking}")
    yield _home()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    yield Finding("machine", Verdict.GOOD, f"{os.cpu_count()} CPUs, {memory:,.0f} GB of memory")
    gpus = visible_gpus(os.environ)
    told = f"{len(gpus)} that may be used: {', '.join(gpus)}" if gpus else "none that may be used"
    yield Finding("GPUs", Verdict.GOOD if gpus else Verdict.ABSENT, told)


def _home() -> Finding:
    try:
        home = state_home()
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(home).free
    except TorchxError as error:
        return Finding("state home", Verdict.WRONG, error.message, error.hint or "")
    except OSError as error:
        return Finding(
            "state home",
            Verdict.WRONG,
            f"{user_home()}: {error.strerror}",
            "set TORCHX_HOME to a folder of yours",
        )
    if free < LITTLE:
        told = f"{home} has {free / 1e6:,.0f} MB left"
        return Finding("state home", Verdict.WRONG, told, "make room: torchx prune")
    return Finding("state home", Verdict.GOOD, f"{home}, {free / 1e9:,.0f} GB free")
