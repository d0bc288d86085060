"""Checks and converts the values of container options, named as in the `docker` package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torchx.errors import UsageError

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class WrongValueError(Exception):
    """The value of an option is invalid; the message is the expected form."""


def bytes_of(size: Any) -> int:
    """Returns a size in bytes.

    >>> bytes_of("256m"), bytes_of(1024)
    (268435456, 1024)
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgt]?)b?", str(size).strip().lower())
    if match is None:
        raise UsageError(f"`{size}` is not a size; expected a number of bytes or e.g. 256m")
    return int(float(match[1]) * _UNITS[match[2]])


def size(value: Any) -> int:
    """Returns a size in bytes, from a number or a string such as ``256m``."""
    try:
        return bytes_of(value)
    except UsageError:
        raise WrongValueError("a number of bytes or e.g. 256m") from None


def text(value: Any) -> str:
    """Returns a string, from a string or a number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise WrongValueError("a text")
    return str(value)


def boolean(value: Any) -> bool:
    """Returns a boolean; a string such as ``false`` is rejected."""
    if not isinstance(value, bool):
        raise WrongValueError("true or false")
    return value


def number(value: Any) -> int:
    """Returns a whole number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise WrongValueError("a whole number")
    return int(value)


def texts(value: Any) -> list[str]:
    """Returns a list of strings; a single string is rejected."""
    if not isinstance(value, (list, tuple)):
        raise WrongValueError("a list of texts")
    return [text(item) for item in value]


def mapping(value: Any) -> dict[str, Any]:
    """Returns a mapping as a dict."""
    if not isinstance(value, Mapping):
        raise WrongValueError("values by name")
    return dict(value)


def mappings(value: Any) -> list[dict[str, Any]]:
    """Returns a list of mappings, with the keys of the engine's interface."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
        raise WrongValueError("a list of values by name, as in the engine's interface")
    return [dict(item) for item in value]


def options(value: Any) -> dict[str, str]:
    """Returns strings by name; numbers become strings."""
    return {str(name): text(item) for name, item in mapping(value).items()}


def limits(value: Any) -> list[dict[str, Any]]:
    """Returns limits such as ``{"name": "nofile", "soft": 1024, "hard": 2048}``."""
    return [fields_of("Name Soft Hard")(item) for item in mappings(value)]


def fields_of(names: str) -> Callable[[Any], dict[str, Any]]:
    """Returns a function that renames the keys of a mapping to the engine's capitalized names.

    >>> fields_of("Name Soft")({"name": "nofile", "Soft": 1024})
    {'Name': 'nofile', 'Soft': 1024}
    """
    known = {name.lower(): name for name in names.split()}

    def convert(value: Any) -> dict[str, Any]:
        converted = {
            known.get(str(key).replace("_", "").lower()): item for key, item in mapping(value).items()
        }
        if None in converted:
            raise WrongValueError(f"values for {', '.join(known.values())}")
        return {str(key): item for key, item in converted.items()}

    return convert


def program(value: Any) -> list[str]:
    """Returns a program and its arguments; a string is a program without arguments."""
    return [value] if isinstance(value, str) else texts(value)


def environment(value: Any) -> list[str]:
    """Returns variables as ``NAME=value``."""
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()]
    return texts(value)


def devices(value: Any) -> list[dict[str, str]]:
    """Returns devices, from strings such as ``/dev/a:/dev/b:rw``."""
    return [_device(device) for device in texts(value)]


def _device(device: str) -> dict[str, str]:
    source, _, rest = device.partition(":")
    target, _, permissions = rest.partition(":")
    return {
        "PathOnHost": source,
        "PathInContainer": target or source,
        "CgroupPermissions": permissions or "rwm",
    }


def volumes(value: Any) -> list[str]:
    """Returns mounts as ``SOURCE:TARGET:MODE``.

    >>> volumes({"/src": {"bind": "/dst", "mode": "ro"}, "data": "/data"})
    ['/src:/dst:ro', 'data:/data']
    """
    if not isinstance(value, Mapping):
        return texts(value)
    binds = []
    for source, target in value.items():
        if isinstance(target, Mapping):
            if not isinstance(target.get("bind"), str) or not {*target} <= {"bind", "mode"}:
                raise WrongValueError("e.g. {'/src': {'bind': '/dst', 'mode': 'ro'}}")
            target = f"{target['bind']}:{text(target.get('mode', 'rw'))}"
        binds.append(f"{source}:{text(target)}")
    return binds


def tmpfs(value: Any) -> dict[str, str]:
    """Returns options by path, from a mapping or from strings such as ``/path:size=1g``."""
    if isinstance(value, Mapping):
        return {str(path): text(options) for path, options in value.items()}
    return {path: options for path, _, options in (one.partition(":") for one in texts(value))}


def hosts(value: Any) -> list[str]:
    """Returns extra hosts as ``NAME:ADDRESS``, from such strings or from addresses by name."""
    if isinstance(value, Mapping):
        return [f"{name}:{text(address)}" for name, address in value.items()]
    return texts(value)


def ports(value: Any) -> dict[str, list[dict[str, str]]]:
    """Returns port bindings; a binding is a port, an (address, port), a list of these, or None for any port.

    >>> ports({80: 8080, "53/udp": ("127.0.0.1", 5353)})
    {'80/tcp': [{'HostPort': '8080'}], '53/udp': [{'HostIp': '127.0.0.1', 'HostPort': '5353'}]}
    """
    if not isinstance(value, Mapping):
        raise WrongValueError("e.g. {'80/tcp': 8080}")
    bindings = {}
    for port, places in value.items():
        name = str(port) if "/" in str(port) else f"{port}/tcp"
        bindings[name] = [_published(place) for place in (places if isinstance(places, list) else [places])]
    return bindings


def _published(place: Any) -> dict[str, str]:
    if isinstance(place, tuple) and len(place) in (1, 2):
        return {"HostIp": text(place[0]), "HostPort": text(place[1]) if place[1:] else ""}
    return {"HostPort": "" if place is None else text(place)}
