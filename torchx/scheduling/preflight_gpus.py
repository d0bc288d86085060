"""Checks of the GPUs of a machine: present, answering, with free memory, without reported defects.

It is the first part of the program of preflight_program.py, which runs with the Python of a replica: it
imports the standard library only, and works with Python 3.8. `torchx doctor --gpus` uses it too.
"""

from __future__ import annotations

import os
import subprocess
import time

from torchx.json_limits import Object

GPU_ANSWERS_WITHIN = 60
"""Maximum seconds until the driver answers."""
CRITICAL_XIDS = (48, 62, 64, 74, 79, 95, 119, 120)
"""Errors in the kernel log after which a GPU needs a reset or a repair."""
XID_SINCE = 3600.0
"""Seconds for which an error in the kernel log counts."""
IN_USE = 0.1
"""Share of a GPU's memory in use from which it counts as used by another program."""
GB = 10**9


class CheckFailedError(Exception):
    """A check has failed; the text is the finding."""


class NotInstalledError(CheckFailedError):
    """This machine has no program of the driver."""


def check_gpus(request: Object, check: Object) -> None:
    """Checks the GPUs that this process may use.

    Args:
        request: has `gpus`, the number of requested GPUs.
        check: may have `least`, the bytes of memory that must be free on each.

    Raises:
        CheckFailedError: one of them is missing or defective.
    """
    gpus = visible(read_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    wanted = max(1, request.get("gpus", 0))
    if len(gpus) < wanted:
        raise CheckFailedError(f"{len(gpus)} of {wanted} requested GPUs are present")
    problems = [problem for gpu in gpus for problem in defects(gpu, check.get("least"))]
    if problems:
        raise CheckFailedError("; ".join(problems))


def read_gpus() -> list[Object]:
    """Returns the GPUs of this machine: a mapping of values for each, by the columns of `nvidia-smi`.

    Raises:
        CheckFailedError: the driver does not answer.
    """
    gpus = query("index,uuid,pci.bus_id,memory.total,memory.used")
    health = "uuid,ecc.errors.uncorrected.volatile.total,retired_pages.pending,remapped_rows.failure"
    try:
        more = {gpu["uuid"]: gpu for gpu in query(health)}
    except CheckFailedError:  # a driver that lacks one of these values
        more = {}
    xids = kernel_errors()
    return [{**gpu, **more.get(gpu["uuid"], {}), "xids": xids.get(bus_of(gpu), [])} for gpu in gpus]


def query(columns: str) -> list[Object]:
    """Returns columns of all GPUs.

    Raises:
        CheckFailedError: `nvidia-smi` is missing, or does not answer.
    """
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=GPU_ANSWERS_WITHIN,
            check=False,
        )
    except FileNotFoundError:
        raise NotInstalledError("nvidia-smi is not installed") from None
    except subprocess.TimeoutExpired:
        raise CheckFailedError(f"nvidia-smi does not answer within {GPU_ANSWERS_WITHIN} s") from None
    except OSError as error:
        raise CheckFailedError(f"nvidia-smi cannot be started: {error.strerror}") from None
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.strip()]
    if done.returncode:
        raise CheckFailedError(f"nvidia-smi: {lines[-1] if lines else f'exit code {done.returncode}'}")
    names = columns.split(",")
    rows = [[value.strip() for value in line.split(",")] for line in lines]
    return [dict(zip(names, row)) for row in rows if len(row) == len(names)]  # noqa: B905 - Python 3.8


def visible(gpus: list[Object], names: str | None) -> list[Object]:
    """Returns the GPUs that a value of CUDA_VISIBLE_DEVICES selects; all of them without one."""
    if names is None or "MIG-" in names:  # the driver lists no instances here
        return gpus
    selected = [name.strip() for name in names.split(",") if name.strip()]
    return [
        gpu
        for gpu in gpus
        if any(
            name == gpu["index"] or (name[:4] == "GPU-" and gpu["uuid"].startswith(name)) for name in selected
        )
    ]


def defects(gpu: Object, least: float | None = None) -> list[str]:
    """Returns the defects of a GPU, a text each.

    Args:
        gpu: its values.
        least: bytes of memory that must be free (default: most of it).
    """
    name = f"GPU {gpu['index']}"
    found = []
    total, used = number(gpu.get("memory.total")), number(gpu.get("memory.used"))
    if total is None or used is None:
        found.append(f"{name} reports no memory: {gpu.get('memory.total')}")
    elif least is not None and (total - used) * 2**20 < least:
        free = (total - used) * 2**20 / GB
        found.append(f"{name} has {free:.1f} GB of memory free, {least / GB:.1f} GB are needed")
    elif least is None and used > total * IN_USE:
        found.append(f"{name} has {used} of {total} MiB of memory in use")
    if errors := number(gpu.get("ecc.errors.uncorrected.volatile.total")):
        found.append(f"{name} has {errors} uncorrected ECC errors")
    if gpu.get("retired_pages.pending", "").lower() == "yes":
        found.append(f"{name} has pages to retire: it needs a reset")
    if gpu.get("remapped_rows.failure", "").lower() in ("yes", "1"):
        found.append(f"{name} could not remap a defective row")
    found += [f"{name} has the kernel error Xid {xid}" for xid in gpu.get("xids", ())]
    return found


def number(text: str | None) -> int | None:
    """Returns a whole number, or None for values such as `[N/A]`."""
    if text is not None and text.isdigit():
        return int(text)
    return None


def bus_of(gpu: Object) -> str:
    """Returns the PCI address of a GPU as the kernel writes it.

    >>> bus_of({"pci.bus_id": "00000000:3B:00.0"})
    '0000:3b:00'
    """
    return str(gpu.get("pci.bus_id", "")).lower()[-12:].rpartition(".")[0]


def kernel_errors(path: str = "/dev/kmsg") -> dict[str, list[int]]:
    """Returns the recent critical errors of GPUs by PCI address; none if this user may not read them."""
    found: dict[str, list[int]] = {}
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return found
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    try:
        while True:
            try:
                record = os.read(descriptor, 8192)
            except BrokenPipeError:  # it was overwritten in the meantime
                continue
            if not record:
                return found
            for line in record.decode("utf-8", "replace").splitlines():
                at, bus, xid = xid_in(line)
                if xid in CRITICAL_XIDS and now - at < XID_SINCE:
                    found.setdefault(bus, []).append(xid)
    except OSError:  # no further record
        return found
    finally:
        os.close(descriptor)


def xid_in(line: str) -> tuple[float, str, int]:
    """Returns the time, the PCI address and the number of an error of a GPU in a record of the kernel.

    >>> xid_in("4,1,5000000,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=1, GPU has fallen off the bus.")
    (5.0, '0000:3b:00', 79)
    """
    head, _, text = line.partition(";")
    fields = head.split(",")
    bus, _, code = text.partition("Xid (PCI:")[2].partition("): ")
    xid = number(code.partition(",")[0].strip())
    if xid is None or len(fields) < 3 or not fields[2].isdigit():
        return 0.0, "", 0
    return int(fields[2]) / 1e6, bus.lower(), xid
