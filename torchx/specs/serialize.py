"""Lossless conversion of applications to plain data for JSON, and back."""

from __future__ import annotations

from dataclasses import asdict
from types import NoneType
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data, Object
from torchx.json_shape import ANY_KEY, REQUIRED, Shape
from torchx.masking import MASK, SecretValue
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.mounts import BindMount, DeviceMount, Mount, MountType, TmpfsMount, VolumeMount
from torchx.specs.resources import Resource
from torchx.specs.workspace import Workspace

_TUPLE = "!tuple"
_PAIRS = "!pairs"
_MOUNTS: dict[str, type[Mount]] = {
    MountType.BIND.value: BindMount,
    MountType.VOLUME.value: VolumeMount,
    MountType.DEVICE.value: DeviceMount,
    MountType.TMPFS.value: TmpfsMount,
}
_KIND = {mount: kind for kind, mount in _MOUNTS.items()}

SHAPE: Shape = {
    REQUIRED: ("name", "roles"),
    "name": str,
    "metadata": {},
    "roles": [
        {
            REQUIRED: ("name", "image"),
            "name": str,
            "image": str,
            "min_replicas": (int, NoneType),
            "entrypoint": str,
            "args": [str],
            "env": {ANY_KEY: str},
            "num_replicas": int,
            "max_retries": int,
            "retry_policy": str,
            "resource": {
                REQUIRED: ("cpu", "gpu", "memMB"),
                "cpu": float,
                "gpu": float,
                "memMB": float,
                "capabilities": {},
                "devices": {ANY_KEY: int},
                "tags": {},
            },
            "port_map": {ANY_KEY: int},
            "metadata": {},
            "mounts": [
                {
                    REQUIRED: ("type", "dst_path"),
                    "type": str,
                    "src": str,
                    "src_path": str,
                    "dst_path": str,
                    "read_only": bool,
                    "permissions": str,
                    "size_mb": (int, NoneType),
                }
            ],
            "workspace": ({ANY_KEY: str}, NoneType),
        }
    ],
}
"""The shape of the data of :func:`app_to_dict`."""


def app_to_dict(app: AppDef, strict: bool = True) -> Object:
    """Returns an application as plain data: mappings with text keys, lists, texts, numbers, None.

    A tuple in metadata, capabilities or tags becomes ``{"!tuple": [...]}``, a mapping with other keys
    than texts ``{"!pairs": [[key, value], ...]}``. A subclass of Role is written as a Role. The value of a
    secret is masked.

    Args:
        app: the application; not changed.
        strict: whether an unsupported value is an error; otherwise its ``repr`` is written, and
            lazy overrides are left out.

    Raises:
        UsageError: a value is not supported, or a role has unresolved overrides.

    >>> data = app_to_dict(AppDef("a", roles=[Role("r", "img", metadata={"x": (1, 2)})]))
    >>> data["roles"][0]["metadata"], app_from_dict(data).roles[0].metadata
    ({'x': {'!tuple': [1, 2]}}, {'x': (1, 2)})
    """
    return {
        "name": app.name,
        "roles": [_role_to_dict(role, strict) for role in app.roles],
        "metadata": _plain(app.metadata, "metadata", strict),
    }


def app_from_dict(data: Data) -> AppDef:
    """Restores an application from the data of :func:`app_to_dict`.

    Missing fields get their defaults and unknown ones are ignored, so that data of other versions can be
    read.

    Raises:
        UsageError: the data is not an application.
    """
    try:
        roles = [_role_from_dict(role) for role in data["roles"]]
        return AppDef(name=data["name"], roles=roles, metadata=_rich(data.get("metadata", {})))
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UsageError(f"the data is not an application: {type(e).__name__}: {e}") from e


def _role_to_dict(role: Role, strict: bool) -> Object:
    if role.overrides and strict:
        raise UsageError(f"role `{role.name}` has unresolved overrides: {', '.join(role.overrides)}")
    where = f"role `{role.name}`"
    return {
        "name": role.name,
        "image": role.image,
        "min_replicas": role.min_replicas,
        "entrypoint": role.entrypoint,
        "args": list(role.args),
        "env": {n: MASK if isinstance(v, SecretValue) else v for n, v in role.env.items()},
        "num_replicas": role.num_replicas,
        "max_retries": role.max_retries,
        "retry_policy": role.retry_policy.value,
        "resource": {
            "cpu": role.resource.cpu,
            "gpu": role.resource.gpu,
            "memMB": role.resource.memMB,
            "capabilities": _plain(role.resource.capabilities, f"capabilities of {where}", strict),
            "devices": dict(role.resource.devices),
            "tags": _plain(role.resource.tags, f"tags of {where}", strict),
        },
        "port_map": dict(role.port_map),
        "metadata": _plain(role.metadata, f"metadata of {where}", strict),
        "mounts": [{"type": _KIND[type(mount)], **asdict(mount)} for mount in role.mounts],
        "workspace": None if role.workspace is None else dict(role.workspace.projects),
    }


def _role_from_dict(data: Data) -> Role:
    plain = ("min_replicas", "entrypoint", "num_replicas", "max_retries")
    role = Role(data["name"], data["image"], **{name: data[name] for name in plain if name in data})
    role.args = list(data.get("args", ()))
    role.env = dict(data.get("env", {}))
    role.port_map = dict(data.get("port_map", {}))
    role.metadata = _rich(data.get("metadata", {}))
    role.retry_policy = RetryPolicy(data.get("retry_policy", role.retry_policy.value))
    if "resource" in data:
        role.resource = _resource(data["resource"])
    role.mounts = [_mount(mount) for mount in data.get("mounts", ())]
    if data.get("workspace") is not None:
        role.workspace = Workspace(dict(data["workspace"]))
    return role


def _resource(data: Data) -> Resource:
    return Resource(
        cpu=data["cpu"],
        gpu=data["gpu"],
        memMB=data["memMB"],
        capabilities=_rich(data.get("capabilities", {})),
        devices=dict(data.get("devices", {})),
        tags=_rich(data.get("tags", {})),
    )


def _mount(data: Data) -> Mount:
    return _MOUNTS[data["type"]](**{key: value for key, value in data.items() if key != "type"})


def _plain(value: Any, where: str, strict: bool) -> Any:
    """Converts a value to JSON types, with tags for other types."""
    if type(value) in (type(None), bool, int, float, str):
        return value
    for primitive in (int, float, str):
        if isinstance(value, primitive):
            return primitive(getattr(value, "value", value))  # for an enum member its value, as in JSON
    if isinstance(value, list):
        return [_plain(v, where, strict) for v in value]
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(v, where, strict) for v in value]}
    if isinstance(value, dict):
        # a mapping that looks like a tag is written as pairs, so that it is restored correctly
        if all(isinstance(key, str) for key in value) and list(value) not in ([_TUPLE], [_PAIRS]):
            return {key: _plain(v, where, strict) for key, v in value.items()}
        return {_PAIRS: [[_plain(k, where, strict), _plain(v, where, strict)] for k, v in value.items()]}
    if strict:
        raise UsageError(f"the {where} contains a {type(value).__name__}, which cannot be serialized")
    return repr(value)


def _rich(value: Any) -> Any:
    """Reverses :func:`_plain`."""
    if isinstance(value, list):
        return [_rich(v) for v in value]
    if not isinstance(value, dict):
        return value
    if list(value) == [_TUPLE]:
        return tuple(_rich(v) for v in value[_TUPLE])
    if list(value) == [_PAIRS]:
        return {_rich(k): _rich(v) for k, v in value[_PAIRS]}
    return {key: _rich(v) for key, v in value.items()}
