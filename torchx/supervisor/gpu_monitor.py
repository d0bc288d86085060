"""A program that prints the use of the NVIDIA GPUs at an interval, until its output is closed.

Each line: number, id, utilisation in percent, memory in use in MiB, as `nvidia-smi` prints them. Only gpus.py
runs it, as a file: it imports nothing of this package.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

QUERY = "--query-gpu=index,uuid,utilization.gpu,memory.used"


def main(interval: float) -> None:
    """Prints the use of the GPUs by NVML, or becomes `nvidia-smi`.

    Args:
        interval: seconds between two measurements.
    """
    try:
        import pynvml  # optional: the package nvidia-ml-py

        nvml: Any = pynvml
        nvml.nvmlInit()
    except Exception:  # not installed, or no driver: each version has errors of its own
        loop = f"--loop={max(round(interval), 1)}"
        os.execvp("nvidia-smi", ["nvidia-smi", QUERY, "--format=csv,noheader,nounits", loop])  # noqa: S606
    while True:
        for number in range(nvml.nvmlDeviceGetCount()):
            sys.stdout.write(line_of(nvml, number) + "\n")
        sys.stdout.flush()
        time.sleep(interval)


def line_of(nvml: Any, number: int) -> str:
    """Returns the line of a GPU; values that it does not have are `[N/A]`.

    Args:
        nvml: the module of NVML.
        number: the number of the GPU.
    """
    device = nvml.nvmlDeviceGetHandleByIndex(number)
    uuid = nvml.nvmlDeviceGetUUID(device)
    name = uuid if isinstance(uuid, str) else uuid.decode()
    busy = _value(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu)
    memory = _value(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(device).used >> 20)
    return f"{number}, {name}, {busy}, {memory}"


def _value(nvml: Any, get: Callable[[], Any]) -> str:
    try:
        return str(get())
    except nvml.NVMLError:  # such as the utilisation of a GPU that is divided
        return "[N/A]"


if __name__ == "__main__":
    main(float(sys.argv[1]))
