"""Trains with the replicas that are there: torchft averages their gradients, and heals one that is back."""

from __future__ import annotations

import argparse
import os
import signal
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

HOST = os.environ.get("TORCHX_HOSTS_LIGHTHOUSE", "localhost")
PORT = os.environ.get("TORCHX_PORT_LIGHTHOUSE", "29510")
REPLICA = int(os.environ.get("TORCHX_REPLICA", "trainer/0").rpartition("/")[2])
ATTEMPT = int(os.environ.get("TORCHX_ATTEMPT", "1"))


def train(steps: int, every: float) -> None:
    """Trains; in its first attempt, this replica is killed after its turn has come."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    adam = torch.optim.Adam(network.parameters(), lr=0.01)

    def state() -> dict[str, Any]:
        return {"network": network.state_dict(), "adam": adam.state_dict()}

    def load(given: dict[str, Any]) -> None:
        network.load_state_dict(given["network"])
        adam.load_state_dict(given["adam"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        replica_id=f"trainer{REPLICA}",
        lighthouse_addr=f"http://{HOST}:{PORT}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    model, optimizer = DistributedDataParallel(manager, network), Optimizer(manager, adam)
    x = 2 * torch.rand(256, 1, generator=torch.Generator().manual_seed(REPLICA)) - 1
    y = torch.sin(5 * x)
    print(f"replica {REPLICA} starts, attempt {ATTEMPT}", flush=True)
    begin = time.monotonic()
    while manager.current_step() < steps:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()  # averages the gradients over the replicas that are there
        optimizer.step()  # only if all of them have succeeded
        step = manager.current_step()
        if step % 20 == 0:
            count = manager.num_participants()
            print(f"step {step:3} of replica {REPLICA}: {count} replicas, loss {loss.item():.4f}", flush=True)
        if ATTEMPT == 1 and time.monotonic() - begin > every * (REPLICA + 1):
            print(f"replica {REPLICA} is killed after step {step}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.1)  # stands for a larger network
    manager.shutdown(wait=False)


def main() -> None:
    """Reads the arguments and trains."""
    parser = argparse.ArgumentParser(description="Trains while replicas are killed.")
    parser.add_argument("--steps", type=int, default=600, help="steps in all (default: 600)")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills (default: 20)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the replicas share the machine
    train(arguments.steps, arguments.every)


if __name__ == "__main__":
    main()
