"""What a container is made from: the engine's own words for the options of a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.words import did_you_mean

UNNAMED = ("none", "host", "bridge", "default")
"""Networks of every engine, in which containers have no names."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def bytes_of(size: Any) -> int:
    """Returns a size in bytes.

    >>> bytes_of("256m"), bytes_of(1024)
    (268435456, 1024)
    """
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([bkmgt]?)b?", str(size).strip().lower())
    if found is None:
        raise UsageError(f"`{size}` is no size; expected a number of bytes or e.g. 256m")
    return int(float(found[1]) * _UNITS[found[2]])


def _devices(devices: Any) -> list[dict[str, str]]:
    found = []
    for device in devices:
        source, _, rest = str(device).partition(":")
        target, _, permissions = rest.partition(":")
        found.append(
            {
                "PathOnHost": source,
                "PathInContainer": target or source,
                "CgroupPermissions": permissions or "rwm",
            }
        )
    return found


def _env(environment: Any) -> list[str]:
    if isinstance(environment, Mapping):
        return [f"{name}={value}" for name, value in environment.items()]
    return [str(line) for line in environment]


def _same(value: Any) -> Any:
    return value


_Words = Mapping[str, tuple[str, Callable[[Any], Any]]]

_CONFIG: _Words = {
    "hostname": ("Hostname", _same),
    "domainname": ("Domainname", _same),
    "user": ("User", str),
    "environment": ("Env", _env),
    "labels": ("Labels", dict),
    "working_dir": ("WorkingDir", _same),
    "entrypoint": ("Entrypoint", lambda value: [value] if isinstance(value, str) else list(value)),
    "stop_signal": ("StopSignal", _same),
    "healthcheck": ("Healthcheck", _same),
}
_HOST: _Words = {
    "privileged": ("Privileged", bool),
    "init": ("Init", bool),
    "mem_limit": ("Memory", bytes_of),
    "memswap_limit": ("MemorySwap", bytes_of),
    "mem_reservation": ("MemoryReservation", bytes_of),
    "shm_size": ("ShmSize", bytes_of),
    "nano_cpus": ("NanoCpus", int),
    "cpuset_cpus": ("CpusetCpus", _same),
    "mounts": ("Mounts", list),
    "volumes": ("Binds", list),
    "tmpfs": ("Tmpfs", dict),
    "devices": ("Devices", _devices),
    "device_requests": ("DeviceRequests", list),
    "device_cgroup_rules": ("DeviceCgroupRules", list),
    "restart_policy": ("RestartPolicy", dict),
    "network": ("NetworkMode", _same),
    "network_mode": ("NetworkMode", _same),
    "ipc_mode": ("IpcMode", _same),
    "pid_mode": ("PidMode", _same),
    "pids_limit": ("PidsLimit", int),
    "cap_add": ("CapAdd", list),
    "cap_drop": ("CapDrop", list),
    "security_opt": ("SecurityOpt", list),
    "group_add": ("GroupAdd", lambda value: [str(group) for group in value]),
    "extra_hosts": ("ExtraHosts", lambda hosts: [f"{name}:{ip}" for name, ip in hosts.items()]),
    "dns": ("Dns", list),
    "ulimits": ("Ulimits", list),
    "sysctls": ("Sysctls", dict),
    "read_only": ("ReadonlyRootfs", bool),
    "runtime": ("Runtime", _same),
    "storage_opt": ("StorageOpt", dict),
    "oom_score_adj": ("OomScoreAdj", int),
}
OPTIONS = frozenset({*_CONFIG, *_HOST, "ports", "name", "detach"})
"""The options of a container, by the names of the ``docker`` package."""


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuses options of containers that are not known.

    Raises:
        UsageError: one is not known.
    """
    for name in options:
        if name not in OPTIONS:
            raise UsageError(
                f"unknown container option `{name}` {where}",
                hint=did_you_mean(name, OPTIONS, "the names are those of the docker package"),
            )


def to_body(image: str, command: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the engine is sent to make a container.

    Args:
        image: the image.
        command: the program and its arguments.
        options: all else, by the names of the ``docker`` package's ``containers.run``.

    Raises:
        UsageError: an option is not known here.
    """
    check_options(options, "in the request")
    body: dict[str, Any] = {"Image": image, "Cmd": list(command)}
    host: dict[str, Any] = {}
    for name, value in options.items():
        for target, words in ((body, _CONFIG), (host, _HOST)):
            if name in words and value is not None:
                key, convert = words[name]
                target[key] = convert(value)
    if options.get("ports"):
        body["ExposedPorts"] = {port: {} for port in options["ports"]}
        host["PortBindings"] = {
            port: [{"HostPort": "" if at is None else str(at)}] for port, at in options["ports"].items()
        }
    body["HostConfig"] = host
    endpoints = _endpoints(host.get("NetworkMode", ""), options.get("hostname"))
    return {**body, "NetworkingConfig": {"EndpointsConfig": endpoints}} if endpoints else body


def _endpoints(network: str, name: str | None) -> dict[str, Any]:
    """Returns how a container joins its network: its name there stays, whatever it is called later."""
    # the engine's own networks know no names, and refuse them
    if not name or network in ("", *UNNAMED) or network.startswith("container:"):
        return {}
    return {network: {"Aliases": [name]}}


def _as_docker_says_it(host: dict[str, Any], networks: list[str]) -> None:
    """Puts right, in place, what Podman says of a container and does not take itself."""
    if host.get("NanoCpus"):
        host |= {"CpuPeriod": 0, "CpuQuota": 0}  # the same once more
    if host.get("NetworkMode") == "bridge" and networks and "bridge" not in networks:
        host["NetworkMode"] = networks[0]
    if host.get("Runtime") == "oci":
        del host["Runtime"]
    limits = host.get("Ulimits") or []
    host["Ulimits"] = [{**one, "Name": one["Name"].lower().removeprefix("rlimit_")} for one in limits]


def next_body(inspected: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the engine is sent to make a container once more, from what it says of the old one.

    Args:
        inspected: what the engine says of it.
        labels: labels that differ.
    """
    config = dict(inspected["Config"])
    host = dict(inspected["HostConfig"])
    # the very image of before: a tag may have moved on
    config["Image"] = inspected["Image"]
    config["Labels"] = {**(config.get("Labels") or {}), **labels}
    networks = list(inspected.get("NetworkSettings", {}).get("Networks") or {})
    _as_docker_says_it(host, networks)
    network = host.get("NetworkMode", "")
    endpoints = _endpoints(network, config.get("Hostname")) if network in networks else {}
    return {**config, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": endpoints}}
