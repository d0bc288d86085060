"""Hangs of PyTorch programs, with real process groups and data loaders: the culprit differs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from local import scheduler, submit
from support import wait_until

from torchx.scheduling.stacks import ProcessStack
from torchx.specs.app import Role

PROGRAM = """
import os, sys, threading
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

def forked(name, size, function):
    for rank in range(size):
        if os.fork() == 0:
            store = f"file://{sys.argv[1]}.{name}"
            dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
            function(rank)

def late(rank):
    if rank == 1:
        before_the_collective()
    dist.all_reduce(torch.ones(1))

def before_the_collective():
    threading.Event().wait()

def mixed(rank):
    if rank == 0:
        dist.all_reduce(torch.ones(1))
    else:
        dist.broadcast(torch.ones(1), src=0)

class Items(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

def loading():
    for _ in DataLoader(Items(), num_workers=1):
        pass

def peer_has_died():
    if os.fork() == 0:  # rank 1 has ended before it joined
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}.died", rank=0, world_size=2)

peer_has_died()
forked("late", 3, late)
forked("mixed", 2, mixed)
loading()
"""
"""One process imports PyTorch and starts all ranks, as an import takes seconds."""


def functions(process: ProcessStack) -> set[str]:
    return {f.function.rpartition(".")[2] for thread in process.threads for f in thread.frames}


def having(processes: list[ProcessStack], *names: str) -> int:
    return sum(set(names) <= functions(process) for process in processes)


@pytest.mark.long
def test_the_culprit_differs(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="no PyTorch: .venv/bin/pip install torch")
    role = Role("w", image="", entrypoint=sys.executable, args=["-c", PROGRAM, str(tmp_path / "store")])
    app_id = submit(role)
    try:

        def found() -> dict[str, int]:
            processes = list(scheduler().stacks(app_id, None, None, native=False).processes)
            return {
                "dead peer": having(processes, "peer_has_died", "init_process_group"),
                "late": having(processes, "late", "before_the_collective"),
                "its peers": having(processes, "late", "all_reduce"),
                "all_reduce": having(processes, "mixed", "all_reduce"),
                "broadcast": having(processes, "mixed", "broadcast"),
                "loader": having(processes, "loading", "__next__"),
                "its worker": having(processes, "loading", "__getitem__"),
            }

        expected = {"dead peer": 1, "late": 1, "its peers": 2, "all_reduce": 1, "broadcast": 1, "loader": 1}
        wait_until(lambda: found() == {**expected, "its worker": 1}, "each hang is found")
        groups = scheduler().stacks(app_id, None, None, native=False).groups()
        peers = [group for group in groups if having(list(group.processes), "late", "all_reduce")]
        assert [len(group.processes) for group in peers] == [2], "equal stacks are one group"
    finally:
        scheduler().kill(app_id)
