"""Trains a network on scikit-learn's handwritten digits with PyTorch DDP, on CPUs or GPUs.

    torchx run -s local_cwd dist.torchrun -j 2x2 --script examples/digits/train.py

Every process has an equal share of the images and the same network; the gradients are averaged over all. With
a time limit, it saves a checkpoint when it is notified, and the next run continues from there:

    torchx run --time-limit 1h --warn-before 1m --requeue time-limit \\
        dist.torchrun -j 2x2 --script examples/digits/train.py
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from torchx.distributed import INTERRUPTED, ending
except ImportError:  # in an image without torchx, the program runs to its end
    INTERRUPTED = 75

    def ending() -> bool:
        """Returns False: no notice reaches this program."""
        return False


HELD_OUT = 360
"""Images that are never trained on, of 1797."""


def digits(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns all images, as rows of 64 values from 0 to 1, and their digits, always in the same order."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(7))
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    return images[order].to(device), torch.tensor(data.target)[order].to(device)


def network() -> nn.Module:
    """Returns a small convolutional network for images of 8 by 8 points."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def save(path: Path, state: dict[str, object]) -> None:
    """Writes a checkpoint; a process that is killed meanwhile leaves the former one."""
    torch.save(state, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)


def train(device: torch.device, epochs: int, batch: int, lr: float, checkpoint: Path | None) -> float | None:
    """Trains and returns the share of the held-out images that are recognized, None if the run ends."""
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels = digits(device)

    torch.manual_seed(7)
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss_of = nn.CrossEntropyLoss()

    # each process takes the same number of images, so that all make the same number of steps
    share = (len(images) - HELD_OUT) // world
    mine = slice(HELD_OUT + rank * share, HELD_OUT + (rank + 1) * share)
    first = 1
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
        if rank == 0:
            print(f"continues after epoch {state['epoch']}", flush=True)
    for epoch in range(first, epochs + 1):
        losses = []
        torch.manual_seed(epoch)  # the order of the images is the same, whichever run trains the epoch
        for step in torch.randperm(share, device=device).split(batch):
            optimizer.zero_grad()
            loss = loss_of(model(images[mine][step]), labels[mine][step])
            loss.backward()  # averages the gradients over all processes
            optimizer.step()
            losses.append(loss.detach())
        if rank == 0 and epoch % 3 == 0:
            print(f"epoch {epoch:3}  loss {torch.stack(losses).mean():.3f}", flush=True)
        if ending() and epoch < epochs and checkpoint is not None:  # on all processes after the same epoch
            if rank == 0:
                states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
                save(checkpoint, {"epoch": epoch, **states})
                print(f"saved after epoch {epoch}", flush=True)
            return None

    # the network is the same everywhere: no process needs another one for this
    with torch.no_grad():
        right = model.module(images[:HELD_OUT]).argmax(dim=1) == labels[:HELD_OUT]
    return float(right.float().mean())


def main() -> None:
    """Joins the other processes, trains, and prints the result once."""
    parser = argparse.ArgumentParser(description="Trains a network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=15, help="times to see every image (default: 15)")
    parser.add_argument("--batch", type=int, default=16, help="images of a step, per process (default: 16)")
    parser.add_argument("--lr", type=float, default=5e-3, help="learning rate (default: 0.005)")
    folder = os.environ.get("TORCHX_CHECKPOINT_DIR")
    default = Path(folder, "digits.pt") if folder else None
    parser.add_argument("--checkpoint", type=Path, default=default, help="file to save to and continue from")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # the processes share the machine
    # a GPU for each process of this node, or none for any
    use_gpu = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if use_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if use_gpu else "gloo")
    try:
        if dist.get_rank() == 0:
            print(f"training on {dist.get_world_size()} processes", flush=True)
        accuracy = train(device, arguments.epochs, arguments.batch, arguments.lr, arguments.checkpoint)
        if accuracy is None:
            sys.exit(INTERRUPTED)  # not done: the next run continues
        if dist.get_rank() == 0:
            print(f"held-out accuracy {100 * accuracy:.1f} %", flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
