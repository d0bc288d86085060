"""Container options that users write: checks them, and sets them in the body of the engine's create request.

An option has a name of the ``docker`` package or of the engine's API, and a value in the form of either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import chain
from typing import Any

from torchx.errors import UsageError
from torchx.json_limits import Data, Object
from torchx.schedulers.docker.container_body import Environment, networking
from torchx.suggestions import did_you_mean

HOST = "HostConfig"
RESERVED = ("Hostname", "Labels", "Env", "RestartPolicy")
"""Keys that only the scheduler sets."""
SECRET = ("Entrypoint", "Healthcheck", "LogConfig", "Annotations")
"""Keys whose values may hold secrets."""

_Convert = Callable[[Any], Any]


class WrongValueError(Exception):
    """The value of an option is invalid; the message is the expected form."""


# --- the forms of values -------------------------------------------------------------------------


def _kind(kinds: type | tuple[type, ...], expected: str, convert: _Convert) -> _Convert:
    """Returns a function that converts values of some types, and rejects others; bool is not a number."""

    def checked(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            raise WrongValueError(expected)
        return convert(value)

    return checked


boolean = _kind(bool, "true or false", bool)
text = _kind((str, int), "a string", str)
texts = _kind((list, tuple), "a list of strings", lambda items: list(map(text, items)))
mapping = _kind(Mapping, "values by name", dict)
texts_by_name = _kind(
    Mapping, "values by name", lambda items: {str(name): text(item) for name, item in items.items()}
)


mappings = _kind(
    (list, tuple),
    "a list of values by name, as in the engine's interface",
    lambda items: [mapping(item) for item in items],
)


def number(value: Any) -> int:
    """Returns a whole number, such as 2 or 2e9."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        raise WrongValueError("a whole number")
    return int(value)


def _package(function: str, kinds: type | tuple[type, ...], expected: str) -> _Convert:
    """Returns a function that converts values of some types as the ``docker`` package does."""

    def convert(value: Any) -> Any:
        from docker import errors  # on demand: slow to import
        from docker.utils import utils

        try:
            return getattr(utils, function)(value)
        except (errors.DockerException, AttributeError, KeyError, TypeError, ValueError):
            raise WrongValueError(expected) from None

    return _kind(kinds, expected, convert)


def _either(kinds: type | tuple[type, ...], first: _Convert, other: _Convert) -> _Convert:
    """Returns a function that converts values of some types by ``first``, and others by ``other``."""
    return lambda value: (first if isinstance(value, kinds) else other)(value)


def fields_of(names: str) -> _Convert:
    """Returns a function that renames the keys of a mapping to the engine's capitalized names.

    >>> fields_of("Name Soft")({"name": "nofile", "Soft": 1024})
    {'Name': 'nofile', 'Soft': 1024}
    """
    known = {name.lower(): name for name in names.split()}

    def convert(value: Any) -> Object:
        keys = {str(key).replace("_", "").lower(): item for key, item in mapping(value).items()}
        if not keys.keys() <= known.keys():
            raise WrongValueError(f"values for {', '.join(known.values())}")
        return {known[key]: item for key, item in keys.items()}

    return convert


size = _either(int, number, _package("parse_bytes", str, "a number of bytes or e.g. 256m"))
devices = _package("parse_devices", (list, tuple), "a list of strings")
binds = _package("convert_volume_binds", Mapping, "e.g. {'/src': {'bind': '/dst', 'mode': 'ro'}}")
tmpfs = _package("convert_tmpfs_mounts", (list, tuple), "a list of strings")
hosts = _package("format_extra_hosts", Mapping, "a list of strings")
environment = _package("format_environment", Mapping, "a list of strings")


def ports(value: Any) -> Object:
    """Returns port bindings, from the form of the ``docker`` package or the engine's."""
    bound = {port: places for port, places in mapping(value).items() if _are_bindings(places)}
    rest = {port: places for port, places in value.items() if port not in bound}
    expected = "e.g. {'80/tcp': 8080}"
    if rest:
        bound |= _package("convert_port_bindings", Mapping, expected)(rest)
    if not all(re.fullmatch(r"[0-9-]*", str(one.get("HostPort", ""))) for one in chain(*bound.values())):
        raise WrongValueError(expected)
    return bound


def _are_bindings(places: Any) -> bool:
    return isinstance(places, list) and all(isinstance(place, Mapping) for place in places)


# --- the options ---------------------------------------------------------------------------------


def _by_key(*groups: tuple[str, _Convert]) -> dict[str, _Convert]:
    return {key: convert for keys, convert in groups for key in keys.split()}


_IN_BODY = _by_key(
    ("Hostname Domainname User WorkingDir StopSignal MacAddress", text),
    ("Labels ExposedPorts Volumes", mapping),
    ("StopTimeout", number),
    ("NetworkDisabled", boolean),
    ("Env", _either(Mapping, environment, texts)),
    ("Entrypoint", _either(str, lambda program: [program], texts)),
    ("Healthcheck", fields_of("Test Interval Timeout Retries StartPeriod StartInterval")),
    ("NetworkingConfig", fields_of("EndpointsConfig")),
)
_IN_HOST = _by_key(
    ("NetworkMode IpcMode PidMode UTSMode UsernsMode CgroupnsMode CgroupParent CpusetCpus CpusetMems", text),
    ("Runtime VolumeDriver", text),
    ("Privileged Init ReadonlyRootfs OomKillDisable PublishAllPorts", boolean),
    ("Memory MemorySwap MemoryReservation ShmSize", size),
    ("NanoCpus CpuShares CpuPeriod CpuQuota CpuRealtimePeriod CpuRealtimeRuntime BlkioWeight", number),
    ("MemorySwappiness OomScoreAdj PidsLimit", number),
    ("CapAdd CapDrop SecurityOpt GroupAdd Dns DnsOptions DnsSearch DeviceCgroupRules Links", texts),
    ("VolumesFrom MaskedPaths ReadonlyPaths", texts),
    ("Mounts DeviceRequests BlkioWeightDevice BlkioDeviceReadBps BlkioDeviceReadIOps", mappings),
    ("BlkioDeviceWriteBps BlkioDeviceWriteIOps", mappings),
    ("Sysctls StorageOpt Annotations", texts_by_name),
    ("Binds", _either(Mapping, binds, texts)),
    ("Tmpfs", _either(Mapping, texts_by_name, tmpfs)),
    ("Devices", devices),
    ("ExtraHosts", _either(Mapping, hosts, texts)),
    ("Ulimits", lambda value: [fields_of("Name Soft Hard")(limit) for limit in mappings(value)]),
    ("PortBindings", ports),
    ("RestartPolicy", mapping),
    ("LogConfig", fields_of("Type Config")),
)
_CONVERT = {**_IN_BODY, **_IN_HOST}
_RENAMED = {
    "environment": "Env", "volumes": "Binds", "network": "NetworkMode", "ports": "PortBindings",
    "read_only": "ReadonlyRootfs", "mem_limit": "Memory", "memswap_limit": "MemorySwap",
    "mem_reservation": "MemoryReservation", "mem_swappiness": "MemorySwappiness", "dns_opt": "DnsOptions",
    "cgroupns": "CgroupnsMode", "uts_mode": "UTSMode", "cpu_rt_period": "CpuRealtimePeriod",
    "cpu_rt_runtime": "CpuRealtimeRuntime",
}  # fmt: skip
_KEYS = {
    **{key: key for key in _CONVERT},
    **{re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): key for key in _CONVERT},
    **_RENAMED,
}
"""The engine's key of each option; most names of the package are a key in lower case."""


def apply_options(body: Object, options: Data, where: str) -> None:
    """Sets options of a container in the body of its create request, in place; None removes one.

    Args:
        body: the body.
        options: values by name; also by the engine's names in a mapping ``HostConfig``.
        where: the place of the options, for error messages.

    Raises:
        UsageError: an option is unknown or has an invalid value.
    """
    host = body[HOST]
    changed = set()
    for name, value in _flat(options):
        key = _KEYS.get(name)
        if key is None:
            hint = "options are named as in the docker package, or as in the engine's API"
            raise UsageError(
                f"unknown container option `{name}` {where}", hint=did_you_mean(str(name), _KEYS, hint)
            )
        changed.add(key)
        section = host if key in _IN_HOST else body
        if value is None:
            section.pop(key, None)
            continue
        try:
            section[key] = _CONVERT[key](value)
        except WrongValueError as expected:
            message = f"the container option `{name}` {where} is {value!r}, expected {expected}"
            raise UsageError(message) from None
    if host.get("PortBindings"):
        body["ExposedPorts"] = {**body.get("ExposedPorts", {}), **{port: {} for port in host["PortBindings"]}}
    joins = "NetworkingConfig" not in body or changed & {"NetworkMode", "Hostname"}
    if joins and "NetworkingConfig" not in changed:
        body["NetworkingConfig"] = networking(body)


def _flat(options: Data) -> Iterator[tuple[str, Any]]:
    """Yields the options, and those in ``HostConfig``."""
    for name, value in options.items():
        if name == HOST and isinstance(value, Mapping):
            yield from value.items()
        else:
            yield name, value


def reserved_in(options: Data) -> str | None:
    """Returns the first option that only the scheduler may set, or None."""
    reserved = (n for n, _ in _flat(options) if n in ("name", "detach") or _KEYS.get(n) in RESERVED)
    return next(reserved, None)


def without_secrets(options: Data) -> Object:
    """Returns options without those that may hold secrets."""
    return {
        name: without_secrets(value) if name == HOST and isinstance(value, Mapping) else value
        for name, value in options.items()
        if _KEYS.get(name) not in SECRET
    }


class Options(MutableMapping[str, Any]):
    """The options of a container by name: a view of its body, with the engine's form of each value.

    Args:
        name: the name of the container.
        body: the body of its create request.
    """

    def __init__(self, name: str, body: Object) -> None:
        self._name, self._body = name, body

    def _section(self, name: str) -> Object:
        return self._body[HOST] if _KEYS[name] in _IN_HOST else self._body

    def __getitem__(self, name: str) -> Any:
        if name == "name":
            return self._name
        value = self._section(name)[_KEYS[name]]
        if _KEYS[name] == "Env":
            return Environment(value)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        apply_options(self._body, {name: value}, f"of {self._name}")

    def __delitem__(self, name: str) -> None:
        del self._section(name)[_KEYS[name]]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in _flat(self._body) if name in _KEYS)

    def __len__(self) -> int:
        return sum(1 for _ in self)
