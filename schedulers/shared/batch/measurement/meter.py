"""Measures the processes of a replica on its node.

The file of the agent begins with a copy of this one.
"""

import os
import resource
import time

from torchx.schedulers.shared.batch.node.program import children_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

USAGE = "usage.json"  # the file in the folder of an attempt that has its measurements while it runs
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds between two measurements, first and later
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Measures a program and the processes below it at growing intervals.

    Args:
        pid: the program.
        write: writes the values of a measurement.
    """

    def __init__(self, pid: int, write: "Callable[..., None]") -> None:
        self.pid, self.write = pid, write
        self.began = time.monotonic()
        self.next_at = self.began + FIRST_PAUSE
        self.last_at, self.last_cpu = self.began, 0.0
        self.peak = 0

    def measure(self, now: float) -> None:
        """Measures the processes if it is due."""
        if now < self.next_at:
            return
        self.next_at = now + min(now - self.began, LONGEST_PAUSE)
        cpu, memory = used_by(self.pid)
        if not memory:  # it has ended
            return
        self.peak = max(self.peak, memory)
        self.write(
            at=time.time(),
            span=now - self.began,
            cpu=cpu,
            memory=memory,
            peak=self.peak,
            recent_cpu=max(cpu - self.last_cpu, 0.0) / (now - self.last_at),
            recent_span=now - self.last_at,
        )
        self.last_at, self.last_cpu = now, cpu

    def totals(self) -> "dict[str, Any]":
        """Returns the values of the whole attempt, when all its processes have ended."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "span": time.monotonic() - self.began,
            "cpu": used.ru_utime + used.ru_stime,
            "peak": max(self.peak, used.ru_maxrss * 1024),
        }


def used_by(pid: int) -> "tuple[float, int]":
    """Returns the CPU seconds and the resident memory in bytes of a process and those below it."""
    cpu, memory = 0.0, 0
    left = [pid]
    while left:
        each = left.pop()
        left += children_of(each)
        try:
            with open("/proc/" + str(each) + "/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        cpu += sum(map(int, fields[11:15])) / TICKS  # with those of ended children
        memory += int(fields[21]) * PAGE_SIZE
    return cpu, memory
