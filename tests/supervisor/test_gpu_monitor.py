"""Tests of the program that measures GPUs, and of the reader of its lines."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchx.leases import gpu_query
from torchx.supervisor import gpus
from torchx.supervisor.gpus import Gpu, GpuMonitor, Gpus

MB = 1 << 20


def test_a_gpu_without_a_value_is_unknown() -> None:
    known = Gpus({"2": Gpu(None, None), "0": Gpu(0.5, MB)})
    assert known.of(["2"]) == known.of(["7"]) == Gpu(None, None)
    assert known.of(["0", "2"]) == Gpu(0.5, MB)


def test_a_monitor_without_a_driver_has_no_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monitor = GpuMonitor()
    monitor.start(5.0)
    assert monitor._process is not None
    os.waitpid(monitor._process.pid, 0)
    assert monitor.read() == {}
    assert monitor._reader == -1, "its end was seen"
    monitor.close()


def test_a_monitor_that_cannot_be_started_has_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(gpus, "os", SimpleNamespace(**{**vars(os), "pipe2": fail}))
    monitor = GpuMonitor()
    monitor.start(5.0)
    assert monitor.read() == {}
    monitor.close()


def test_old_values_are_not_the_current_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(gpus, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monitor = GpuMonitor()
    monitor._stale = 15.0
    monitor._reader, writer = os.pipe2(os.O_NONBLOCK)
    os.write(writer, b"0, GPU-aa, 40, 10, 90\n1, GPU-b")
    assert monitor.read().of(["0"]) == Gpu(0.4, 10 * MB)
    now[0] = 110.0
    os.write(writer, b"b, 50, 20, 90\n")
    assert set(monitor.read()) == {"0", "GPU-aa", "1", "GPU-bb"}
    now[0] = 120.0
    assert set(monitor.read()) == {"1", "GPU-bb"}
    os.close(writer)
    monitor.close()


def test_the_line_of_a_gpu_by_nvml() -> None:
    class Nvml:
        class NVMLError(Exception):
            pass

        used = total = 2048 * MB

        def __getattr__(self, name: str) -> Callable[[object], object]:
            values = {
                "nvmlDeviceGetHandleByIndex": 7,
                "nvmlDeviceGetUUID": b"GPU-1",
                "nvmlDeviceGetMemoryInfo": self,
            }
            if not name.startswith("nvml"):
                raise AttributeError(name)

            def call(_: object) -> object:
                if name not in values:
                    raise self.NVMLError("not supported")
                return values[name]

            return call

    columns = gpus.USE.partition("=")[2].split(",")
    assert list(gpu_query.use(Nvml(), 3, columns)) == ["3, GPU-1, [N/A], 2048, 2048"]
