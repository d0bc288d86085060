"""Instance types of AWS.

Of each GiB of a machine, 983 MB (96 %) are counted: the rest is for the system and the cluster's agents. Each
resource has the instance type as a capability, by which the Kubernetes scheduler selects nodes, and the
devices for fast networks (EFA) and Neuron accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchx.json_limits import without_empty
from torchx.specs.resources import GiB, Resource

EFA_DEVICE = "vpc.amazonaws.com/efa"
NEURON_DEVICE = "aws.amazon.com/neurondevice"
K8S_ITYPE = "node.kubernetes.io/instance-type"
MEM_TAX = 0.96

_TABLE = """\
type               CPUs GPUs   GiB  EFA  Neuron
t3.medium             2    0     4    0       0
m5.large              2    0     8    0       0
m5.xlarge             4    0    16    0       0
m5.2xlarge            8    0    32    0       0
m5.4xlarge           16    0    64    0       0
m5.8xlarge           32    0   128    0       0
m5.12xlarge          48    0   192    0       0
m5.16xlarge          64    0   256    0       0
m5.24xlarge          96    0   384    0       0
m5.metal             96    0   384    0       0
m5d.large             2    0     8    0       0
m5d.xlarge            4    0    16    0       0
m5d.2xlarge           8    0    32    0       0
m5d.4xlarge          16    0    64    0       0
m5d.8xlarge          32    0   128    0       0
m5d.12xlarge         48    0   192    0       0
m5d.16xlarge         64    0   256    0       0
m5d.24xlarge         96    0   384    0       0
m5d.metal            96    0   384    0       0
c5.18xlarge          72    0   142    0       0
p3.2xlarge            8    1    61    0       0
p3.8xlarge           32    4   244    0       0
p3.16xlarge          64    8   488    0       0
p3dn.24xlarge        96    8   768    1       0
p4d.24xlarge         96    8  1152    4       0
p4de.24xlarge        96    8  1152    4       0
p5.48xlarge         192    8  2048   32       0
p5e.48xlarge        192    8  2048   32       0
p5en.48xlarge       192    8  2048   16       0
p6-b200.48xlarge    192    8  2048    8       0
p6-b300.48xlarge    192    8  4096   16       0
p6e-gb200.36xlarge  144    4   960   16       0
g4dn.xlarge           4    1    16    0       0
g4dn.2xlarge          8    1    32    0       0
g4dn.4xlarge         16    1    64    0       0
g4dn.8xlarge         32    1   128    1       0
g4dn.12xlarge        48    4   192    1       0
g4dn.16xlarge        64    1   256    1       0
g4dn.metal           96    8   384    1       0
g5.xlarge             4    1    16    0       0
g5.2xlarge            8    1    32    0       0
g5.4xlarge           16    1    64    0       0
g5.8xlarge           32    1   128    1       0
g5.12xlarge          48    4   192    1       0
g5.16xlarge          64    1   256    1       0
g5.24xlarge          96    4   384    1       0
g5.48xlarge         192    8   768    1       0
g6e.xlarge            4    1    32    0       0
g6e.2xlarge           8    1    64    0       0
g6e.4xlarge          16    1   128    0       0
g6e.8xlarge          32    1   256    0       0
g6e.12xlarge         48    4   384    0       0
g6e.16xlarge         64    1   512    0       0
g6e.24xlarge         96    4   768    2       0
g6e.48xlarge        192    8  1536    4       0
trn1.2xlarge          8    0    32    0       1
trn1.32xlarge       128    0   512    8      16
inf2.xlarge           4    0    16    0       1
inf2.8xlarge         32    0   128    0       1
inf2.24xlarge        96    0   384    0       6
inf2.48xlarge       192    0   768    0      12
"""
"""Instance types: logical processors, GPUs, GiB of memory, EFA devices, Neuron devices."""

_TYPES = {name: [*map(int, numbers)] for name, *numbers in map(str.split, _TABLE.splitlines()[1:])}


def _machine(instance_type: str) -> Callable[[], Resource]:
    cpu, gpu, gib, efa, neuron = _TYPES[instance_type]
    devices = {EFA_DEVICE: efa, NEURON_DEVICE: neuron}

    def make() -> Resource:
        return Resource(
            cpu=cpu,
            gpu=gpu,
            memMB=gib * int(GiB * MEM_TAX),
            capabilities={K8S_ITYPE: instance_type},
            devices=without_empty(devices),
        )

    return make


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {f"aws_{name}": _machine(name) for name in _TYPES}
"""A function that makes the resource, by its name."""

_FUNCTIONS = {name.replace(".", "_").replace("-", "_"): make for name, make in NAMED_RESOURCES.items()}


def __getattr__(name: str) -> Callable[[], Resource]:
    """Each machine is a function too, e.g. ``aws_p4d_24xlarge()``."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
