"""Checks of this machine for local jobs: the state home, Python, free disk space, and resources."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from torchx.errors import TorchxError
from torchx.jobs.paths import state_home, user_home
from torchx.leases.gpus import visible_gpus
from torchx.machine import files, processes
from torchx.scheduling.findings import Finding, Verdict

LITTLE = 1 << 30
"""Bytes of free disk space below which logs may soon be lost."""


def diagnose() -> Iterator[Finding]:
    """Yields the finding of each check; has no side effects."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", Verdict.GOOD, f"{version} at {sys.executable}")
    lacking = processes.missing()
    if lacking is not None:
        yield Finding("system", Verdict.ABSENT, f"local jobs need {lacking}")
    yield _home()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    yield Finding("machine", Verdict.GOOD, f"{os.cpu_count()} CPUs, {memory:,.0f} GB of memory")
    gpus = [gpu.name for gpu in visible_gpus(os.environ)]
    message = "none available"
    if gpus:
        message = f"{len(gpus)} available: {', '.join(gpus)}"
    yield Finding("GPUs", Verdict.GOOD if gpus else Verdict.ABSENT, message)


def _home() -> Finding:
    try:
        home = state_home()
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(home).free
    except TorchxError as error:
        return Finding.of_error("state home", error)
    except OSError as error:
        return Finding("state home", Verdict.WRONG, f"{user_home()}: {error.strerror}", files.OTHER_HOME)
    if free < LITTLE:
        message = f"{home} has {free / 1e6:,.0f} MB free"
        return Finding("state home", Verdict.WRONG, message, "free space: torchx prune")
    return Finding("state home", Verdict.GOOD, f"{home}, {free / 1e9:,.0f} GB free")
