"""Resources of one replica: processors, accelerators, memory, devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchx.plugins.tags import resource_tags

GiB = 1024
"""A GiB in the unit of ``Resource.memMB``."""


@dataclass
class Resource:
    """The resources of one replica.

    Attributes:
        cpu: logical processors.
        gpu: accelerators.
        memMB: memory in units of 1024 * 1024 bytes.
        capabilities: further requirements of the hardware; each scheduler reads the keys it knows.
        devices: number of devices by name, e.g. ``{"vpc.amazonaws.com/efa": 4}``.
        tags: notes for users and tools; schedulers ignore them.

    >>> Resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})
    """

    cpu: int
    gpu: int
    memMB: int
    capabilities: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tags: dict[str, object] = field(default_factory=dict)

    def is_fractional(self) -> bool:
        """Returns True if this is a part of a registered resource, such as half of a machine."""
        return self.tags.get(resource_tags.IS_FRACTIONAL) is True

    def get_resource_name(self) -> str | None:
        """Returns the name this resource was registered under, or None."""
        name = self.tags.get(resource_tags.RESOURCE_NAME)
        if name is None:
            return None
        return str(name)

    @staticmethod
    def copy(original: Resource, **capabilities: Any) -> Resource:
        """Returns a copy of a resource with capabilities added; a given one replaces the original's.

        >>> Resource.copy(Resource(1, 0, 512, {"arch": "arm"}), arch="x86").capabilities
        {'arch': 'x86'}
        """
        return Resource(
            cpu=original.cpu,
            gpu=original.gpu,
            memMB=original.memMB,
            capabilities={**original.capabilities, **capabilities},
            devices=dict(original.devices),
            tags=dict(original.tags),
        )


NULL_RESOURCE: Resource = Resource(cpu=-1, gpu=-1, memMB=-1)
"""The absence of a resource; schedulers that need one reject it."""
