"""GPUs of this machine that do not exist: a program `nvidia-smi` that answers as that of the driver."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

SMI = """#!/bin/sh
case "$1" in
-L) cat "$0.list" ;;
--query-compute-apps=*) cat "$0.apps" ;;
--query-gpu=index,uuid,pci*) cat "$0.memory" ;;
--query-gpu=uuid,ecc*) cat "$0.health" ;;
--query-gpu=*) cat "$0.use" ;;
*) exit 6 ;;
esac
"""


class FakeGpus:
    """A machine's GPUs, whose ids no other test has: leases are those of the whole machine.

    Args:
        folder: the folder of the program, to be put on a PATH.
        count: the number of GPUs.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755, exist_ok=True)
        self._program = folder / "nvidia-smi"
        self._program.write_text(SMI)
        self._program.chmod(0o755)
        run = uuid.uuid4().hex[:16]
        self.ids = [f"GPU-{n}{run}" for n in range(count)]
        self.list([f"GPU {n}: a GPU (UUID: {gpu})" for n, gpu in enumerate(self.ids)])
        self.compute()
        self.use(["0, 1, 81920"] * count)
        self.memory(*[1] * count)
        self.health(*["0, No, 0"] * count)

    @property
    def path(self) -> str:
        """A PATH with the program."""
        return f"{self.folder}:{os.environ['PATH']}"

    def list(self, lines: list[str]) -> None:
        """Sets the answer to `-L`."""
        self._answer("list", lines)

    def compute(self, *processes: tuple[int, int, str]) -> None:
        """Sets the processes that compute: number of the GPU, pid, program."""
        self._answer("apps", [f"{self.ids[gpu]}, {pid}, {program}" for gpu, pid, program in processes])

    def use(self, lines: list[str]) -> None:
        """Sets the use of each GPU: percent, MiB in use, MiB."""
        uses = zip(self.ids, lines, strict=True)
        self._answer("use", [f"{n}, {gpu}, {line}" for n, (gpu, line) in enumerate(uses)])

    def memory(self, *used: int) -> None:
        """Sets the memory in use of each GPU, MiB."""
        lines = [f"{n}, {gpu}, 00000000:0{n}:00.0, 81920" for n, gpu in enumerate(self.ids)]
        self._answer("memory", [f"{line}, {mib}" for line, mib in zip(lines, used, strict=True)])

    def health(self, *values: str) -> None:
        """Sets the defects of each GPU: uncorrected errors, pages to retire, failed remapping."""
        self._answer("health", [f"{gpu}, {line}" for gpu, line in zip(self.ids, values, strict=True)])

    def _answer(self, name: str, lines: list[str]) -> None:
        file = self._program.with_name(f"nvidia-smi.{name}")
        new = file.with_name(f"{file.name}.new")
        new.write_text("".join(f"{line}\n" for line in lines))
        new.chmod(0o644)
        new.replace(file)


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int) -> FakeGpus:
    """Gives this process, and the programs that it starts, a machine with GPUs."""
    gpus = FakeGpus(tmp_path / "driver", count)
    monkeypatch.setenv("PATH", gpus.path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return gpus
