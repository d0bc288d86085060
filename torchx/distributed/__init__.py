"""Helpers for programs under PyTorch's ``torchrun``: ranks, devices and process groups.

They work in a process that was started by hand, too: it is then the only one. Needs PyTorch.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.distributed.notice import INTERRUPTED as INTERRUPTED
from torchx.distributed.notice import ending as ending
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.stragglers import slots

with lazy_imports:
    from torchx.distributed import recorder

if TYPE_CHECKING:
    import torch


def local_rank() -> int:
    """Returns the number of this process on its machine (``$LOCAL_RANK``); 0 when it is the only one."""
    return _number("LOCAL_RANK", 0)


def rank() -> int:
    """Returns the number of this process among all (``$RANK``); 0 when it is the only one."""
    return _number("RANK", 0)


def world_size() -> int:
    """Returns the number of all processes (``$WORLD_SIZE``); 1 when this is the only one."""
    return _number("WORLD_SIZE", 1)


def is_rank0() -> bool:
    """Returns True if this is the first of all processes."""
    return rank() == 0


def is_local_rank0() -> bool:
    """Returns True if this is the first process on its machine."""
    return local_rank() == 0


def local_device() -> torch.device:
    """Returns what this process computes on: the GPU of its local rank; the CPU where there are no GPUs.

    Raises:
        UsageError: there are GPUs, but fewer than processes on this machine.
    """
    import torch

    if torch.cuda.is_available():
        return local_cuda_device()
    return torch.device("cpu")


def local_cuda_device() -> torch.device:
    """Returns the GPU of this process' local rank.

    Raises:
        UsageError: this process has no GPU.
    """
    import torch

    there = torch.cuda.device_count()
    if local_rank() >= there:
        raise UsageError(
            f"local rank {local_rank()} has no GPU: {there} can be seen",
            hint="start fewer processes on this machine: dist.torchrun -j NODESxPROCESSES",
        )
    return torch.device("cuda", local_rank())


def init_pg(backend: str = "auto", **kwargs: Any) -> torch.device:
    """Joins the processes in PyTorch's default process group, unless that was done.

    Args:
        backend: ``nccl``, ``gloo`` or another that PyTorch has; ``auto`` for nccl where there are GPUs, else
            gloo.
        kwargs: handed to ``torch.distributed.init_process_group``.

    Returns:
        Returns the device of this process; a GPU becomes PyTorch's current device.

    Raises:
        UsageError: there is no GPU for this process.
    """
    import torch
    import torch.distributed as dist

    if backend == "auto":
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "nccl"
    if backend == "nccl":
        device = local_cuda_device()
    else:
        device = local_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        if "RANK" not in os.environ:  # started by hand: a group of one has no peers
            stores: Any = dist  # PyTorch names it for people, and not for type checkers
            kwargs = {"store": stores.HashStore(), "rank": 0, "world_size": 1, **kwargs}
        dist.init_process_group(backend, **kwargs)
    if backend != "nccl":  # nccl has a thread for it
        dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace", None)
        recorder.answer_dump_requests(dist.get_rank(), dump)
    return device


@contextmanager
def on_rank0_first() -> Iterator[None]:
    """Runs a block in the first of all processes, then in the others: for downloads and caches.

    The process group has to be there, see :func:`init_pg`. The others go on when the block has raised an
    error in the first, too.
    """
    with _first(is_rank0()):
        yield


@contextmanager
def on_local_rank0_first() -> Iterator[None]:
    """Runs a block in the first process of each machine, then in the others there.

    As :func:`on_rank0_first`; the others of all machines wait for the first of all machines.
    """
    with _first(is_local_rank0()):
        yield


@contextmanager
def _first(mine: bool) -> Iterator[None]:
    import torch.distributed as dist

    # each process comes to the barrier once: the first ones after the block, the others before it
    if not mine:
        dist.barrier()
    try:
        yield
    finally:
        if mine:
            dist.barrier()


_heartbeat: tuple[memoryview, int] | None = None
_steps: tuple[memoryview, int] | None = None
_looked = False


def beat(step: int = -1) -> None:
    """Reports progress, for the detection of stalls and stragglers (``torchx run --stall 10m``).

    It takes a fraction of a microsecond, so it can be called in each step. Without ``--stall`` and
    ``--straggler`` it does nothing. If the ranks wait for each other in each step, call it before they do:
    then ``torchx status`` shows which rank is late.

    Args:
        step: the number of the step, which ``torchx status`` shows; negative for none.
    """
    if not _looked:
        _find_memory()
    now = time.monotonic_ns()
    if _heartbeat is not None:
        memory, at = _heartbeat
        memory[at] = now
        memory[at + 1] = step
    if _steps is not None and step >= 0:
        memory, at = _steps
        at += step % slots.KEPT * 2
        memory[at + 1] = -1  # a reader ignores the slot until it is complete
        memory[at] = now
        memory[at + 1] = step


def _find_memory() -> None:
    """Opens the shared memory that the supervisor of the job reads."""
    global _heartbeat, _steps, _looked
    _looked = True
    _heartbeat = _memory_of(settings.TORCHX_HEARTBEAT, 0)
    if local_rank() < slots.RANKS:
        _steps = _memory_of(slots.VARIABLE, local_rank() * slots.RING)


def _memory_of(variable: str, inside: int) -> tuple[memoryview, int] | None:
    """Returns the memory that a variable names, and the index at some bytes after its offset."""
    offset, _, path = os.environ.get(variable, "").partition(":")
    if path and offset.isdigit():
        try:
            # in a container it may belong to another user
            descriptor = files.open_file(path, os.O_RDWR, own=False)
            try:
                shared = memoryview(mmap.mmap(descriptor, 0)).cast("q")
            finally:
                os.close(descriptor)
        except (OSError, ValueError):  # the job has ended
            return None
        index = (int(offset) + inside) // 8
        if index + 1 < len(shared):
            return shared, index
    return None


def _number(name: str, alone: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return alone
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"${name} is `{text}`, expected a number as torchrun sets it") from None
