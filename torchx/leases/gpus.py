"""The GPUs of this machine, their use, and the leases of them.

A GPU is leased by its id, so that an index and an id of the same GPU exclude each other. On a GPU that is
divided (MIG), its instances are leased. A GPU on which a process computes that has no lease is not free.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from torchx.lazy import lazy_imports
from torchx.leases.holders import Holder, holders

with lazy_imports:
    import pwd
    import subprocess


CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
PCI_BUS_ID = "PCI_BUS_ID"
"""Value of CUDA_DEVICE_ORDER with which CUDA numbers GPUs as ``nvidia-smi`` does."""

PREFIX = "gpu-"
"""The beginning of the names of the leases of GPUs."""

QUERY = Path(__file__).with_name("gpu_query.py")
ANSWERED_WITHIN = 30.0
"""Maximum seconds until the driver answers; it may take several after a time without use."""

USE = "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total"
COMPUTING = "--query-compute-apps=gpu_uuid,pid,process_name"
"""The queries."""

_IGNORED = ("nvidia-cuda-mps-server",)
"""Programs that compute for others: a service that is always there."""

_GPU = r"GPU (\d+):.*\(UUID: (\S+)\)"
_INSTANCE = r"\s+MIG .*\(UUID: (\S+)\)"

Use = tuple[float | None, int | None, int | None]
"""The utilisation of a GPU (0 to 1), the memory in use and the whole memory (bytes); None if unknown."""


class Gpu(NamedTuple):
    """A GPU, or an instance of a divided one.

    Attributes:
        id: the id that the driver gives it; without a driver's answer, the text in CUDA_VISIBLE_DEVICES.
        name: its text for CUDA_VISIBLE_DEVICES: the index of a GPU, the id of an instance, or the text that
            the caller uses.
        number: the number that the driver gives it; empty for an instance, and without a driver's answer.
        parent: the id of the divided GPU of an instance.
    """

    id: str
    name: str
    number: str = ""
    parent: str = ""

    @property
    def lease(self) -> str:
        """The name of its lease."""
        return f"{PREFIX}{self.id}"


class Computing(NamedTuple):
    """A process that computes on a GPU.

    Attributes:
        pid: its pid.
        program: its program, as the driver names it.
    """

    pid: int
    program: str

    @property
    def uid(self) -> int | None:
        """Its user; None if it has ended."""
        try:
            return os.stat(f"/proc/{self.pid}").st_uid  # noqa: PTH116
        except OSError:
            return None


class GpuUse(NamedTuple):
    """The use of a GPU.

    Attributes:
        gpu: the GPU.
        holder: the holder of its lease; None if it is not leased.
        computing: the processes that compute on it without a lease; empty if it is leased.
    """

    gpu: Gpu
    holder: Holder | None = None
    computing: tuple[Computing, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether a job can lease it and would be alone on it."""
        return self.holder is None and not self.computing

    @property
    def reason(self) -> str:
        """Why it is not free; empty if it is."""
        if self.holder is not None:
            pid = ""
            if self.holder.pid:
                pid = f" (pid {self.holder.pid})"
            what = self.holder.app or f"a process{pid}"
            return f"{what} of {user_name(self.holder.uid)}"
        if not self.computing:
            return ""
        first, more = self.computing[0], len(self.computing) - 1
        others = f" and {more} more" if more else ""
        return f"{first.program} (pid {first.pid}){others} of {user_name(first.uid)}, not started by torchx"


def user_name(uid: int | None) -> str:
    """Returns the name of a user, or the number without a name.

    >>> user_name(0), user_name(None)
    ('root', 'an unknown user')
    """
    if uid is None:
        return "an unknown user"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def all_gpus(env: Mapping[str, str]) -> list[Gpu]:
    """Returns the GPUs of this machine, the instances of the divided ones; empty if no driver answers.

    Args:
        env: the environment whose PATH has ``nvidia-smi``.
    """
    return parse_gpus(_query(env, ["-L"]) or "")


def visible_gpus(env: Mapping[str, str]) -> list[Gpu]:
    """Returns the GPUs that a process with this environment may use: ``CUDA_VISIBLE_DEVICES`` limits them.

    Without an answer of a driver these are the names in the variable.

    Args:
        env: the environment.
    """
    visible = env.get(CUDA_VISIBLE_DEVICES)
    if visible is not None and not visible.strip(", "):
        return []
    gpus = all_gpus(env)
    if visible is None:
        return gpus
    return select(gpus, visible)


def select(gpus: Sequence[Gpu], visible: str) -> list[Gpu]:
    """Returns the GPUs that a value of ``CUDA_VISIBLE_DEVICES`` selects, named as in the value.

    As for CUDA, an entry is an index, an id, or the beginning of one, and the first invalid entry ends the
    list. An index is as in ``nvidia-smi``.

    >>> gpus = [Gpu("GPU-1a", "0", "0"), Gpu("GPU-2b", "1", "1"), Gpu("MIG-7c", "MIG-7c")]
    >>> [[gpu.id for gpu in select(gpus, names)] for names in ("1,GPU-1", "MIG-7", "0,-1,1")]
    [['GPU-2b', 'GPU-1a'], ['MIG-7c'], ['GPU-1a']]
    >>> [gpu.id for gpu in select([], "3,GPU-9")]
    ['3', 'GPU-9']
    """
    entries = [entry.strip() for entry in visible.split(",")]
    if not gpus:
        return [Gpu(entry, entry) for entry in dict.fromkeys(entries) if entry not in ("", "-1")]
    selected: dict[str, Gpu] = {}
    for entry in entries:
        same = [gpu for gpu in gpus if entry in (gpu.number, gpu.id) and entry]
        if not same and entry.startswith(("GPU-", "MIG-")):
            same = [gpu for gpu in gpus if gpu.id.startswith(entry)]
        if len(same) != 1 or same[0].id in selected:
            break
        selected[same[0].id] = same[0]._replace(name=entry)
    return list(selected.values())


def variables_of(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Returns the variables that pass GPUs to a replica; none without GPUs."""
    if not gpus:
        return {}
    variables = {CUDA_VISIBLE_DEVICES: ",".join(gpu.name for gpu in gpus)}
    if any(gpu.number for gpu in gpus):  # the driver's numbers, which CUDA uses in this order only
        variables[CUDA_DEVICE_ORDER] = PCI_BUS_ID
    return variables


def survey(gpus: Sequence[Gpu], env: Mapping[str, str]) -> list[GpuUse]:
    """Returns the use of GPUs, in their order.

    Args:
        gpus: the GPUs.
        env: the environment whose PATH has ``nvidia-smi``.
    """
    if not gpus:
        return []
    answer = _query(env, [COMPUTING])
    computing = parse_computing(_query(env, [COMPUTING]) or "" if answer is None else answer)
    held = holders(gpu.lease for gpu in gpus)
    return [
        GpuUse(gpu, None, tuple(computing.get(gpu.id, ())))
        if (holder := held.get(gpu.lease)) is None
        else GpuUse(gpu, holder)
        for gpu in gpus
    ]


def measure(env: Mapping[str, str]) -> dict[str, Use]:
    """Returns the use of each GPU by its number and by its id."""
    return parse_use(_query(env, [USE]) or "")


def parse_gpus(listing: str) -> list[Gpu]:
    """Returns the GPUs of a listing of ``nvidia-smi -L``.

    >>> one, instance = parse_gpus('''GPU 0: NVIDIA A100 (UUID: GPU-1a)
    ... GPU 1: NVIDIA A100 (UUID: GPU-2b)
    ...   MIG 1g.5gb      Device  0: (UUID: MIG-3c)''')
    >>> one, (instance.id, instance.parent)
    (Gpu(id='GPU-1a', name='0', number='0', parent=''), ('MIG-3c', 'GPU-2b'))
    """
    gpus: list[Gpu] = []
    for line in listing.splitlines():
        if found := re.match(_GPU, line):
            gpus.append(Gpu(found[2], found[1], found[1]))
        elif gpus and (found := re.match(_INSTANCE, line)):
            parent = gpus[-1].parent or gpus[-1].id
            if not gpus[-1].parent:
                gpus.pop()  # a divided GPU is used by its instances only
            gpus.append(Gpu(found[1], found[1], parent=parent))
    return gpus


def parse_computing(table: str) -> dict[str, list[Computing]]:
    """Returns the processes that compute, by the id of their GPU, from lines: id, pid, program.

    >>> parse_computing("GPU-1a, 4121, /usr/bin/python3\\nNo running processes found")
    {'GPU-1a': [Computing(pid=4121, program='python3')]}
    """
    found: dict[str, list[Computing]] = {}
    for line in table.splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and fields[1].isdecimal():
            path = fields[2]
            # such as [Not Found]
            if path.startswith("["):
                name = path
            else:
                name = path.rpartition("/")[2]
            program = "".join(c if c.isprintable() else "?" for c in name)[:64]
            if program not in _IGNORED:
                found.setdefault(fields[0], []).append(Computing(int(fields[1]), program))
    return found


def parse_use(table: str) -> dict[str, Use]:
    """Returns the use of each GPU by number and by id, from lines: number, id, percent, MiB in use, MiB.

    >>> parse_use("0, GPU-1a, 35, 1024, 2048")
    {'0': (0.35, 1073741824, 2147483648), 'GPU-1a': (0.35, 1073741824, 2147483648)}
    >>> parse_use("[N/A], MIG-2b, [N/A], [N/A], [N/A]\\nNo devices were found")
    {'MIG-2b': (None, None, None)}
    """
    found: dict[str, Use] = {}
    for line in table.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 5:
            busy, *sizes = (int(field) if field.isdecimal() else None for field in fields[2:])
            used, total = (None if size is None else size << 20 for size in sizes)
            use = None if busy is None else min(busy, 100) / 100, used, total
            found.update((name, use) for name in fields[:2] if not name.startswith("["))
    return found


def _query(env: Mapping[str, str], arguments: Sequence[str]) -> str | None:
    """Returns the answer of the driver, in the format of ``nvidia-smi``; None if it does not answer.

    A driver may hang if a GPU has failed, so a process of its own queries it: by NVML if `nvidia-ml-py` is
    installed, otherwise `nvidia-smi`.
    """
    command: list[str]
    if find_spec("pynvml") is not None:
        command = [sys.executable, "-I", str(QUERY), *arguments]
    elif (program := shutil.which("nvidia-smi", path=env.get("PATH"))) is not None:
        command = [program, *arguments, *(["--format=csv,noheader,nounits"] if arguments != ["-L"] else [])]
    else:
        return None
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWERED_WITHIN,
            check=True,
            stdin=subprocess.DEVNULL,
            env=dict(env),
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
