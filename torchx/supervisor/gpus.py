"""The use of this machine's NVIDIA GPUs, measured by a process of its own.

A driver may take seconds to answer, or never answer if a GPU has failed. So a child process queries it, and
the supervisor reads only complete lines. The child uses NVML if `nvidia-ml-py` is installed, otherwise it
becomes `nvidia-smi`; without both, GPUs are not measured.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from torchx.leases.gpus import QUERY, USE, parse_use
from torchx.machine import processes
from torchx.machine.processes import Process

READ_SIZE = 1 << 16
LONGEST_LINE = 1 << 10
STALE_AFTER = 3
"""Intervals without a line after which the last values of a GPU are no longer its current use."""


class Gpu(NamedTuple):
    """The use of some GPUs.

    Attributes:
        busy: share of the time in which a program runs there, 0 to 1; None if unknown.
        memory: memory in use, bytes; None if unknown.
    """

    busy: float | None
    memory: int | None


class Gpus(dict[str, Gpu]):
    """The current use of each GPU, by its number and by its id."""

    def of(self, names: Sequence[str]) -> Gpu:
        """Returns the use of several GPUs together: mean utilisation and sum of memory."""
        known = [self[name] for name in names if name in self]
        busy = [gpu.busy for gpu in known if gpu.busy is not None]
        memory = [gpu.memory for gpu in known if gpu.memory is not None]
        return Gpu(sum(busy) / len(busy) if busy else None, sum(memory) if memory else None)


class GpuMonitor:
    """Runs the child process, and reads its lines without ever waiting."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._reader = -1
        self._rest = b""
        self._seen: dict[str, tuple[float, Gpu]] = {}
        self._stale = 0.0

    def start(self, interval: float) -> None:
        """Starts the child process; does nothing if that fails.

        Args:
            interval: seconds between two measurements.
        """
        self._stale = STALE_AFTER * interval
        with contextlib.suppress(OSError):
            self._reader, writer = os.pipe()
            try:
                os.set_blocking(self._reader, False)
                # -I, but with site packages, as NVML is one
                args = [sys.executable, "-I", str(QUERY), USE, f"--loop={interval}"]
                self._process = processes.spawn(args, stdout=writer)
            finally:
                os.close(writer)

    def read(self) -> Gpus:
        """Returns the current use of each GPU."""
        now = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            while self._reader >= 0:
                data = os.read(self._reader, READ_SIZE)
                if not data:
                    self._close_reader()
                *lines, self._rest = (self._rest + data).split(b"\n")
                self._rest = self._rest[:LONGEST_LINE]
                for line in lines:
                    for name, (busy, memory, _) in parse_use(line.decode("ascii", "replace")).items():
                        self._seen[name] = now, Gpu(busy, memory)
        return Gpus({name: gpu for name, (at, gpu) in self._seen.items() if now - at <= self._stale})

    def close(self) -> None:
        """Ends the child process."""
        self._close_reader()
        if self._process is not None:
            processes.send(self._process, signal.SIGKILL)

    def _close_reader(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
