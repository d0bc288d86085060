"""Generic machine sizes, for examples and first runs.

The numbers may change between versions, and no size guarantees a kind of accelerator or network. For real
jobs, register the actual machines; see :mod:`torchx.plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchx.specs.resources import Resource

_TABLE = """\
name       CPUs GPUs     MB
gpu.small     8    1  32768
gpu.medium   16    2  65536
gpu.large    32    4 131072
gpu.xlarge   64    8 262144
cpu.nano      1    0    512
cpu.micro     1    0   1024
cpu.small     1    0   2048
cpu.medium    2    0   4096
cpu.large     2    0   8192
cpu.xlarge    8    0  32768
"""


def _size(cpu: int, gpu: int, mem_mb: int) -> Callable[[], Resource]:
    return lambda: Resource(cpu=cpu, gpu=gpu, memMB=mem_mb)


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {
    name: _size(*map(int, numbers)) for name, *numbers in map(str.split, _TABLE.splitlines()[1:])
}
"""A function that makes the resource, by its name."""
