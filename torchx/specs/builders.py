"""Documented names for building an application from a component function and arguments."""

from torchx.discovery.call.materialize import (
    ComponentArgs,
    component_args_from_str,
    materialize_appdef,
    parse_args,
)
from torchx.specs.handles import make_app_handle
from torchx.specs.mounts import BindMount, DeviceMount, VolumeMount, parse_mounts

__all__ = [
    "BindMount",
    "ComponentArgs",
    "DeviceMount",
    "VolumeMount",
    "component_args_from_str",
    "make_app_handle",
    "materialize_appdef",
    "parse_args",
    "parse_mounts",
]
