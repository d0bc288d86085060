"""The GPUs of a machine: their ids, the limits of a caller, their use and the reasons why one is not free."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fakegpus
import pytest

from torchx.leases import gpus
from torchx.leases.gpus import measure, survey, visible_gpus
from torchx.leases.holders import take
from torchx.machine import cgroups


def free_names() -> list[str]:
    """Returns the names of the free GPUs that this process may use."""
    return [use.gpu.name for use in survey(visible_gpus(os.environ), os.environ) if use.is_free]


def test_an_index_and_an_id_are_the_same_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, tmp_path, 3)
    assert [(gpu.id, gpu.name) for gpu in visible_gpus(os.environ)] == [
        (gpu, str(n)) for n, gpu in enumerate(machine.ids)
    ]
    by_index = visible_gpus({**os.environ, "CUDA_VISIBLE_DEVICES": "2, 0"})
    by_id = visible_gpus({**os.environ, "CUDA_VISIBLE_DEVICES": f"{machine.ids[2][:6]},{machine.ids[0]}"})
    assert [gpu.lease for gpu in by_index] == [gpu.lease for gpu in by_id]
    assert [gpu.name for gpu in by_id] == [machine.ids[2][:6], machine.ids[0]], "named as the caller does"
    for nothing in ("", " ", "-1", "7,0", "GPU-x,0"):
        assert visible_gpus({**os.environ, "CUDA_VISIBLE_DEVICES": nothing}) == []


def test_instances_of_a_divided_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, tmp_path, 3)
    whole, divided, instance = machine.ids
    lines = [f"GPU 0: A (UUID: {whole})", f"GPU 1: A (UUID: {divided})"]
    instance = instance.replace("GPU", "MIG")
    machine.list([*lines, f"  MIG 1g.5gb  Device  0: (UUID: {instance})", "  MIG 2g Device 1: (UUID: MIG-b)"])
    assert [gpu.name for gpu in visible_gpus(os.environ)] == ["0", instance, "MIG-b"]
    (named,) = visible_gpus({**os.environ, "CUDA_VISIBLE_DEVICES": instance[:9]})
    assert (named.id, named.parent) == (instance, divided)


def test_the_reasons_why_a_gpu_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakegpus.install(monkeypatch, tmp_path, 4)
    all_of_them = visible_gpus(os.environ)
    machine.compute(
        (1, os.getpid(), "/usr/bin/python3"), (1, 2**22 + 7, "b"), (3, 7, "nvidia-cuda-mps-server")
    )
    leases = take([all_of_them[0].lease])
    assert leases is not None
    with leases:
        uses = survey(all_of_them, os.environ)
        me = gpus.user_name(os.geteuid())
        assert [use.reason for use in uses] == [
            f"a process (pid {os.getpid()}) of {me}",
            f"python3 (pid {os.getpid()}) and 1 more of {me}, not started by torchx",
            "",
            "",
        ]
        assert free_names() == ["2", "3"]
    assert free_names() == ["0", "2", "3"]
    machine.use(["35, 1, 2", "[N/A], 0, 2", "100, 0, 2", "0, 0, 2"])
    assert [measure(os.environ)[gpu][0] for gpu in machine.ids] == [0.35, None, 1.0, 0.0]
    (tmp_path / "driver" / "nvidia-smi").write_text("#!/bin/sh\necho no driver\nexit 9\n")
    assert (visible_gpus(os.environ), measure(os.environ)) == ([], {})


def test_nvml_is_used_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with the functions of NVML stands for `nvidia-ml-py`, whose driver no machine of tests has."""
    package = tmp_path / "packages"
    package.mkdir()
    (package / "pynvml.py").write_text(NVML)
    command = [str(gpus.QUERY)]
    env = {**os.environ, "PYTHONPATH": str(package)}

    def ask(query: str) -> str:

        return subprocess.check_output([sys.executable, *command, query], env=env, text=True)

    listed = gpus.parse_gpus(ask("-L"))
    assert listed == [gpus.Gpu("GPU-0", "0", "0"), gpus.Gpu("MIG-1.0", "MIG-1.0", parent="GPU-1")]
    computing = gpus.parse_computing(ask(gpus.COMPUTING))
    assert computing == {"GPU-0": [(70, "python")], "MIG-1.0": [(71, "[N/A]")]}
    use = gpus.parse_use(ask(gpus.USE))
    assert use["GPU-0"] == (0.5, 3 << 20, 4 << 20)
    assert use["MIG-1.0"] == (None, 3 << 20, 4 << 20)


NVML = """
from types import SimpleNamespace as N
NVML_DEVICE_MIG_ENABLE = 1
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(n): return f"GPU-{n}"
def nvmlDeviceGetName(device): return b"A"
def nvmlDeviceGetUUID(device): return device
def nvmlDeviceGetMigMode(device):
    if device == "GPU-0": raise NVMLError
    return [1, 1]
def nvmlDeviceGetMaxMigDeviceCount(device): return 2
def nvmlDeviceGetMigDeviceHandleByIndex(device, n):
    if n: raise NVMLError
    return "MIG-1.0"
def nvmlDeviceGetComputeRunningProcesses(device): return [N(pid=70 if device == "GPU-0" else 71)]
def nvmlSystemGetProcessName(pid):
    if pid == 71: raise NVMLError
    return b"/usr/bin/python"
def nvmlDeviceGetUtilizationRates(device):
    if device != "GPU-0": raise NVMLError
    return N(gpu=50)
def nvmlDeviceGetMemoryInfo(device): return N(used=3 << 20, total=4 << 20)
"""


@pytest.mark.parametrize(
    ("files", "cpu", "memory"),
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/b/memory.max": "4096\n",
                "sys/fs/cgroup/a/memory.max": "8192\n",
            },
            1.5,
            4096,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/c\n2:cpu,cpuacct:/c\n0::/\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/c/memory.limit_in_bytes": "8192\n",
            },
            2.0,
            8192,
        ),
        ({"proc/self/cgroup": "2:cpu:/c\n", "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "-1\n"}, None, None),
    ],
)
def test_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], cpu: float | None, memory: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cgroups.own_limits(str(tmp_path)) == (cpu, memory)
