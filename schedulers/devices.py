"""Maps the named devices of a resource to device files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchx.specs.mounts import DeviceMount

DEVICES: Mapping[str, Callable[[int], str]] = {
    "vpc.amazonaws.com/efa": lambda number: f"/dev/infiniband/uverbs{number}",
    "aws.amazon.com/neurondevice": lambda number: f"/dev/neuron{number}",
}
"""Maps each known device name to a function from device number to path."""


def get_device_mounts(devices: Mapping[str, int]) -> list[DeviceMount]:
    """Returns mounts of the device files for devices by name and count; skips unknown names.

    >>> [mount.src_path for mount in get_device_mounts({"aws.amazon.com/neurondevice": 2})]
    ['/dev/neuron0', '/dev/neuron1']
    """
    return [
        DeviceMount(path, path)
        for name, count in devices.items()
        if name in DEVICES
        for path in map(DEVICES[name], range(count))
    ]
