"""Read the resources that the processes of a control group use, in both versions of control groups."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from torchx.machine.processes import read_proc

ROOT = "/sys/fs/cgroup"

UNLIMITED = 1 << 60
"""Bytes from which a limit has no effect; version 1 of control groups has no other value for that."""


class Totals(NamedTuple):
    """Resources that a group uses; unknown values are None.

    Attributes:
        cpu: CPU seconds since its creation.
        memory: bytes in use, without pages of files that the kernel can drop at any time.
        read, write: bytes of storage since its creation.
    """

    cpu: float | None
    memory: int
    read: int | None
    write: int | None


class Cgroup(NamedTuple):
    """A control group.

    Attributes:
        folders: its folder for each controller of version 1; that of version 2 by an empty name.
    """

    folders: Mapping[str, str]

    def read(self) -> Totals | None:
        """Returns the resources that it uses; None if its processes have ended."""
        if (folder := self.folders.get("")) is not None:
            time, unit = _named(f"{folder}/cpu.stat", b"usage_usec"), 1e6
            size = _number(f"{folder}/memory.current")
            cache = _named(f"{folder}/memory.stat", b"inactive_file")
            storage = f"{folder}/io.stat"
        else:
            cpu, memory, disks = (self.folders.get(name, "") for name in ("cpuacct", "memory", "blkio"))
            time, unit = _number(f"{cpu}/cpuacct.usage"), 1e9
            size = _number(f"{memory}/memory.usage_in_bytes")
            cache = _named(f"{memory}/memory.stat", b"total_inactive_file")
            storage = f"{disks}/blkio.throttle.io_service_bytes_recursive"
        if time is None or size is None:
            return None
        return Totals(time / unit, max(size - (cache or 0), 0), *_storage(storage))


def cgroup_of(pid: int, name: str) -> Cgroup | None:
    """Returns the control group of a process; None if it cannot be read here.

    Args:
        pid: the process.
        name: text in the path of the group; another group is not accepted, as the pid may have been reused.
    """
    folders = {}
    for line in os.fsdecode(read_proc(f"/proc/{pid}/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if name in path and not path.startswith("/.."):  # those are outside of our namespace
            for controller in controllers.split(","):
                if controller:
                    folders[controller] = f"{ROOT}/{controller}{path}"
                else:
                    folders[controller] = f"{ROOT}{path}"
    if "memory" in folders:  # a mixed system, whose groups of version 2 have no controllers
        folders.pop("", None)
    group = Cgroup(folders)
    if folders and group.read() is not None:
        return group
    return None


class Limits(NamedTuple):
    """Limits that control groups set for a process; None without one.

    Attributes:
        cpu: processors, possibly a fraction.
        memory: bytes.
    """

    cpu: float | None
    memory: int | None


def own_limits(root: str = "") -> Limits:
    """Returns the limits of this process: the smallest of its control groups and those above them.

    Args:
        root: the folder that contains ``proc`` and ``sys``.
    """
    cpu: list[float] = []
    memory: list[int] = []
    for line in os.fsdecode(read_proc(f"{root}/proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller not in ("", "cpu", "memory"):
                continue
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts) + 1):
                folder = "/".join([f"{root}{ROOT}", *filter(None, [controller]), *parts[:depth]])
                cpu += _processors(folder)
                for name in ("memory.max", "memory.limit_in_bytes"):
                    if (size := _number(f"{folder}/{name}")) is not None and size < UNLIMITED:
                        memory.append(size)
    return Limits(min(cpu, default=None), min(memory, default=None))


def _processors(folder: str) -> list[float]:
    """Returns the limit of processors of one control group, if it has one."""
    quota = read_proc(f"{folder}/cpu.max").split()
    if not quota:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota = [read_proc(f"{folder}/{name}").strip() for name in names]
    if len(quota) == 2 and all(part.isdigit() for part in quota) and int(quota[1]):
        return [int(quota[0]) / int(quota[1])]
    return []


def _number(path: str) -> int | None:
    text = read_proc(path).strip()
    if text.isdigit():
        return int(text)
    return None


def _named(path: str, name: bytes) -> int | None:
    """Returns the value of a name in a file with a name and a number in each line."""
    for line in read_proc(path).splitlines():
        key, _, value = line.partition(b" ")
        if key == name and value.isdigit():
            return int(value)
    return None


def _storage(path: str) -> tuple[int | None, int | None]:
    """Returns the bytes read from and written to all devices."""
    read = write = None
    for kind, size in _TRANSFER.findall(read_proc(path)):
        if kind in (b"Read", b"rbytes"):
            read = (read or 0) + int(size)
        else:
            write = (write or 0) + int(size)
    return read, write


_TRANSFER = re.compile(rb" (Read|Write|rbytes|wbytes)[ =]([0-9]+)\b")
"""In lines such as ``8:0 Read 512`` or ``8:0 rbytes=512 wbytes=0``."""
