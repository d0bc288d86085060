"""Helpers for programs under torchrun: with PyTorch, in several processes, and without torchrun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project.sources import ROOT

from torchx import distributed
from torchx.errors import UsageError

PROGRAM = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from torchx import distributed as d
import torch, torch.distributed as dist
device = d.init_pg()
assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
assert d.init_pg() == device, "a second call changes nothing"
total = torch.ones(1, device=device) * (d.rank() + 1)
dist.all_reduce(total)
with d.on_rank0_first():
    time.sleep(0.05 * (d.rank() == 0))
    open(sys.argv[2], "a").write(f"{d.rank()}\\n")
with d.on_local_rank0_first():
    open(sys.argv[3], "a").write(f"{d.local_rank()}\\n")
try:
    with d.on_rank0_first():
        assert d.rank(), "no disk"
except AssertionError:
    said = f"failed at rank {d.rank()}\\n"
else:
    said = ""
# in one write: the processes have one pipe, and print() writes a line in parts where PYTHONUNBUFFERED is set
os.write(1, f"{said}rank {d.rank()} of {d.world_size()}: {int(total)}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.parametrize("processes", [1, 2])
def test_under_torchrun(tmp_path: Path, processes: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    first, local = tmp_path / "first", tmp_path / "local"
    words = [str(tmp_path / "program.py"), str(ROOT), str(first), str(local)]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    done = subprocess.run([sys.executable, *launch, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total = sum(range(1, processes + 1))
    for rank in range(processes):
        assert f"rank {rank} of {processes}: {total}\n" in done.stdout
    assert first.read_text().startswith("0\n")
    assert local.read_text().startswith("0\n")
    assert len(first.read_text().split()) == processes
    assert "failed at rank 0\n" in done.stdout


@pytest.mark.torch
def test_started_by_hand_it_is_a_group_of_one(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [str(tmp_path / "program.py"), str(ROOT), str(tmp_path / "first"), str(tmp_path / "local")]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 1: 1\n" in done.stdout


def test_who_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert (distributed.rank(), distributed.local_rank(), distributed.world_size()) == (0, 0, 1)
    assert distributed.is_rank0() and distributed.is_local_rank0()
    for name, value in (("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    assert (distributed.rank(), distributed.local_rank(), distributed.world_size()) == (5, 1, 8)
    assert not distributed.is_rank0() and not distributed.is_local_rank0()
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UsageError, match=r"\$RANK is `first`"):
        distributed.rank()
