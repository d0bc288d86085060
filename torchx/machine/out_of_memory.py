"""The kernel's count of processes that it has ended for lack of memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx.end_causes import EndCause, Reason
from torchx.exit_codes import KILLED
from torchx.lazy import lazy_imports

with lazy_imports:
    import resource

if TYPE_CHECKING:
    from resource import struct_rusage

ROOT = Path("/")


class Counter(NamedTuple):
    """A file in which the kernel counts such ends.

    Attributes:
        path: the file.
        group: whether it counts only the control group of this process, and not the whole machine.
    """

    path: Path
    group: bool

    def read(self) -> int | None:
        """Returns the count; None if the file cannot be read."""
        try:
            with open(self.path, encoding="ascii", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(" ")
                    if name == "oom_kill":
                        return int(value)
        except (OSError, ValueError):
            pass
        return None


def find_counter(root: Path = ROOT) -> Counter | None:
    """Returns the counter of the control group of this process, otherwise that of the machine, or None."""
    groups = root / "sys/fs/cgroup"
    found = []
    try:
        lines = (root / "proc/self/cgroup").read_text("ascii", "replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            found.append(Counter(groups / path.strip("/") / "memory.events", True))
        elif "memory" in controllers.split(","):
            found.append(Counter(groups / "memory" / path.strip("/") / "memory.oom_control", True))
            # in a container, the group itself is mounted there
            found.append(Counter(groups / "memory" / "memory.oom_control", True))
    found.append(Counter(root / "proc/vmstat", False))
    return next((counter for counter in found if counter.read() is not None), None)


class Kills:
    """Attributes processes that a SIGKILL has ended to the kernel, by its count.

    Args:
        root: the root of the file system.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._counter = find_counter(root)
        if self._counter:
            self._counted = self._counter.read() or 0
        else:
            self._counted = 0

    def reason(self, usage: struct_rusage | None) -> Reason:
        """Returns the reason of one SIGKILL that has just ended a process, as far as the kernel shows it.

        Args:
            usage: the resources that the process used.
        """
        _, limit = resource.getrlimit(resource.RLIMIT_CPU)
        if usage is not None and 0 < limit <= usage.ru_utime + usage.ru_stime + 1:
            return Reason(f"the CPU time limit of {limit} s (ulimit -t) was reached", EndCause.TIME_LIMIT)
        if self._counter is None or (count := self._counter.read()) is None:
            return Reason(KILLED)
        if count <= self._counted:
            return Reason(OTHER)
        self._counted += 1  # each is the reason of one process
        where = ", on this machine"
        if self._counter.group:
            where = ""
        return Reason(OUT_OF_MEMORY + where, EndCause.OUT_OF_MEMORY)


OUT_OF_MEMORY = "out of memory: the kernel counts an out-of-memory kill"
OTHER = "by another process or a limit: the kernel counts no out-of-memory kill"
