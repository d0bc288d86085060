"""Trains on an elastic gang while a random process is killed every few seconds.

    torchx run -s local_cwd dist.torchrun -j 1x3 \\
        --env PET_MAX_RESTARTS=5,TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 --script examples/survivors/train.py

The processes average their gradients with gloo, and save the network after each epoch. Every 20 seconds one
of them, chosen at random, sends SIGKILL to itself. The others notice the lost connection and end; torchrun
starts the gang again, up to ``PET_MAX_RESTARTS`` times. The next gang continues from the last checkpoint.
Without the second variable, torchrun would reuse the store of the killed gang, with the addresses of
processes that have ended.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHARE = 256
"""Points of each process."""


def curve(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the points of one process, and the values to learn."""
    x = 2 * torch.rand(SHARE, 1, generator=torch.Generator().manual_seed(rank)) - 1
    return x, torch.sin(5 * x)


def save(path: Path, state: dict[str, Any]) -> None:
    """Writes a checkpoint; a process that is killed meanwhile leaves the former one."""
    torch.save(state, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def train(path: Path, epochs: int, every: float, kills: int) -> None:
    """Trains from the last checkpoint on; one process is killed after some seconds, if kills are left."""
    rank = dist.get_rank()
    x, y = curve(rank)
    torch.manual_seed(7)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    done = life = 0
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done, life = state["epoch"], state["life"] + 1
    if rank == 0:
        print(f"gang {life + 1}: {dist.get_world_size()} processes, after epoch {done}", flush=True)
    victim = random.Random(life).randrange(dist.get_world_size())  # the same on all processes
    until = time.monotonic() + every

    for epoch in range(done + 1, epochs + 1):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # averages the gradients over all processes
        optimizer.step()
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            save(path, {"epoch": epoch, "life": life, **states})
            if epoch % 50 == 0 or epoch == done + 1:
                print(f"epoch {epoch:3}  loss {loss.item():.4f}", flush=True)
        dist.barrier()  # the checkpoint is complete
        if rank == victim and life < kills and time.monotonic() >= until:
            print(f"rank {rank} is killed after epoch {epoch}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)  # stands for a larger network


def main() -> None:
    """Joins the other processes and trains."""
    folder = os.environ.get("TORCHX_CHECKPOINT_DIR", ".")
    parser = argparse.ArgumentParser(description="Trains while processes are killed.")
    parser.add_argument("--epochs", type=int, default=3000, help="steps in all (default: 3000)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills (default: 20)")
    parser.add_argument("--kills", type=int, default=3, help="number of kills (default: 3)")
    parser.add_argument("--checkpoint", type=Path, default=Path(folder, "survivors.pt"), help="its file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the processes share the machine
    dist.init_process_group("gloo")
    try:
        train(arguments.checkpoint, arguments.epochs, arguments.every, arguments.kills)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
