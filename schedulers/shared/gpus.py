"""Leases of the GPUs of this machine, so that jobs do not share one by accident."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path

from torchx.jobs.paths import file_name
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine import locks as lock

with lazy_imports:
    import subprocess

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

HOLDERS = ("torchx.schedulers.docker.gpus",)
"""Modules of engines whose jobs hold GPUs of this machine without a lease; ``left_by_jobs`` of each yields
the GPUs that its jobs do not use. They are loaded on demand, as the schedulers are."""


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """Returns the GPUs that this process may use, by index or id; honours ``CUDA_VISIBLE_DEVICES``."""
    visible = env.get(CUDA_VISIBLE_DEVICES)
    if visible is not None:
        return [device.strip() for device in visible.split(",") if device.strip() not in ("", "-1")]
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return []
    try:
        listing = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=20, check=True, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(n) for n, _ in enumerate(line for line in listing.splitlines() if line.startswith("GPU "))]


@contextmanager
def left_by_jobs(gpus: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the GPUs that no engine of this machine uses, and keeps the engines from taking one meanwhile.

    Args:
        gpus: the GPUs of this machine.
    """
    with ExitStack() as held:
        for name in HOLDERS:
            gpus = held.enter_context(import_module(name).left_by_jobs(gpus))
        yield gpus


class Leases:
    """Exclusive leases of devices, held as long as a descriptor of their lock files is open.

    Args:
        folder: folder of the lock files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.held: list[int] = []

    def take(self, devices: Sequence[str], count: int) -> list[str]:
        """Leases the first free devices, up to ``count``, and returns them."""
        files.make_folder(self._folder)
        taken: list[str] = []
        for device in devices:
            if len(taken) == count:
                break
            descriptor = lock.acquire(self._folder / f"gpu-{file_name(device)}")
            if descriptor is not None:
                self.held.append(descriptor)
                taken.append(device)
        return taken

    def close(self) -> None:
        """Closes the descriptors of this process; a supervisor that inherited them keeps the leases."""
        while self.held:
            os.close(self.held.pop())
