"""Generic machine sizes, for examples and first runs.

The numbers may change between versions, and no size guarantees a kind of accelerator or network. For real
jobs, register the actual machines; see :mod:`torchx.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchx.specs.resources import GiB, Resource


def _size(cpu: int, gpu: int, mem_mb: int) -> Callable[[], Resource]:
    return lambda: Resource(cpu=cpu, gpu=gpu, memMB=mem_mb)


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {
    "gpu.small": _size(8, 1, 32 * GiB),
    "gpu.medium": _size(16, 2, 64 * GiB),
    "gpu.large": _size(32, 4, 128 * GiB),
    "gpu.xlarge": _size(64, 8, 256 * GiB),
    "cpu.nano": _size(1, 0, GiB // 2),
    "cpu.micro": _size(1, 0, 1 * GiB),
    "cpu.small": _size(1, 0, 2 * GiB),
    "cpu.medium": _size(2, 0, 4 * GiB),
    "cpu.large": _size(2, 0, 8 * GiB),
    "cpu.xlarge": _size(8, 0, 32 * GiB),
}
"""A function that makes the resource, by its name."""
