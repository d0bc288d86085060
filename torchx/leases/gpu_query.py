"""A program that answers queries about the NVIDIA GPUs by NVML, in the format of `nvidia-smi`.

It runs as a file, and imports nothing of this package. Without NVML it becomes `nvidia-smi`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

UNKNOWN = "[N/A]"


def main(arguments: list[str]) -> None:
    """Prints the answer to a query.

    Args:
        arguments: the arguments of `nvidia-smi`: `-L` or a query, and for a query `--loop=` with the seconds
            between two answers.
    """
    query, loop = arguments[0], float(arguments[1].removeprefix("--loop=")) if arguments[1:] else 0.0
    try:
        import pynvml  # optional: the package nvidia-ml-py

        nvml: Any = pynvml
        nvml.nvmlInit()
    except Exception:  # not installed, or no driver: each version has errors of its own
        if query == "-L":
            more = []
        else:
            more = ["--format=csv,noheader,nounits"]
        if loop:
            more += [f"--loop={max(round(loop), 1)}"]
        os.execvp("nvidia-smi", ["nvidia-smi", query, *more])  # noqa: S606
    name, _, columns = query.partition("=")
    answers: dict[str, Callable[[Any, int, list[str]], Iterator[str]]] = {
        "-L": listing,
        "--query-compute-apps": computing,
        "--query-gpu": use,
    }
    while True:
        for number in range(nvml.nvmlDeviceGetCount()):
            for line in answers[name](nvml, number, columns.split(",")):
                sys.stdout.write(line + "\n")
        sys.stdout.flush()
        if not loop:
            return
        time.sleep(loop)


def listing(nvml: Any, number: int, _: list[str]) -> Iterator[str]:
    """Yields a GPU and its instances."""
    device = nvml.nvmlDeviceGetHandleByIndex(number)
    yield f"GPU {number}: {_text(nvml.nvmlDeviceGetName(device))} (UUID: {_id(nvml, device)})"
    for index, instance in enumerate(_instances(nvml, device)):
        yield f"  MIG Device {index}: (UUID: {_id(nvml, instance)})"


def computing(nvml: Any, number: int, columns: list[str]) -> Iterator[str]:
    """Yields the processes that compute on a GPU, or on its instances."""
    device = nvml.nvmlDeviceGetHandleByIndex(number)
    for part in list(_instances(nvml, device)) or [device]:
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(part):
            name = _text(_value(nvml, nvml.nvmlSystemGetProcessName, process.pid))
            values = {"gpu_uuid": _id(nvml, part), "pid": process.pid, "process_name": name}
            yield ", ".join(str(values[column]) for column in columns)


def use(nvml: Any, number: int, columns: list[str]) -> Iterator[str]:
    """Yields the use of a GPU, and of its instances, which have no index."""
    device = nvml.nvmlDeviceGetHandleByIndex(number)
    for part in [device, *_instances(nvml, device)]:
        memory = _value(nvml, nvml.nvmlDeviceGetMemoryInfo, part)
        rates = _value(nvml, nvml.nvmlDeviceGetUtilizationRates, part)
        values = {
            "index": number if part is device else UNKNOWN,
            "uuid": _id(nvml, part),
            "utilization.gpu": getattr(rates, "gpu", UNKNOWN),
            "memory.used": UNKNOWN if memory == UNKNOWN else memory.used >> 20,
            "memory.total": UNKNOWN if memory == UNKNOWN else memory.total >> 20,
        }
        yield ", ".join(str(values[column]) for column in columns)


def _instances(nvml: Any, device: Any) -> Iterator[Any]:
    """Yields the instances of a divided GPU; yields none of a whole one."""
    try:
        if nvml.nvmlDeviceGetMigMode(device)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return
        places = range(nvml.nvmlDeviceGetMaxMigDeviceCount(device))
    except nvml.NVMLError:  # a GPU that cannot be divided
        return
    for place in places:
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, place)
        except nvml.NVMLError:
            continue


def _id(nvml: Any, device: Any) -> str:
    return _text(nvml.nvmlDeviceGetUUID(device))


def _text(value: str | bytes) -> str:
    if isinstance(value, str):
        return value
    return value.decode("utf-8", "replace")


def _value(nvml: Any, get: Callable[[Any], Any], of: Any) -> Any:
    try:
        return get(of)
    except nvml.NVMLError:  # such as the utilisation of an instance
        return UNKNOWN


if __name__ == "__main__":
    main(sys.argv[1:])
