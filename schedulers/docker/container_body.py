"""Translates the options of a request into the body of the engine's create call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.schedulers.docker import container_options as convert
from torchx.suggestions import did_you_mean

UNNAMED = ("none", "host", "bridge", "default")
"""The engine's built-in networks, which do not resolve container names."""

_Options = Mapping[str, tuple[str, Callable[[Any], Any]]]

_CONFIG: _Options = {
    "hostname": ("Hostname", convert.text),
    "domainname": ("Domainname", convert.text),
    "user": ("User", convert.text),
    "environment": ("Env", convert.environment),
    "labels": ("Labels", convert.mapping),
    "working_dir": ("WorkingDir", convert.text),
    "entrypoint": ("Entrypoint", convert.program),
    "stop_signal": ("StopSignal", convert.text),
    "healthcheck": (
        "Healthcheck",
        convert.fields_of("Test Interval Timeout Retries StartPeriod StartInterval"),
    ),
}
_HOST: _Options = {
    "privileged": ("Privileged", convert.boolean),
    "init": ("Init", convert.boolean),
    "mem_limit": ("Memory", convert.size),
    "memswap_limit": ("MemorySwap", convert.size),
    "mem_reservation": ("MemoryReservation", convert.size),
    "shm_size": ("ShmSize", convert.size),
    "nano_cpus": ("NanoCpus", convert.number),
    "cpuset_cpus": ("CpusetCpus", convert.text),
    "mounts": ("Mounts", convert.mappings),
    "volumes": ("Binds", convert.volumes),
    "tmpfs": ("Tmpfs", convert.tmpfs),
    "devices": ("Devices", convert.devices),
    "device_requests": ("DeviceRequests", convert.mappings),
    "device_cgroup_rules": ("DeviceCgroupRules", convert.texts),
    "restart_policy": ("RestartPolicy", convert.mapping),
    "network": ("NetworkMode", convert.text),
    "network_mode": ("NetworkMode", convert.text),
    "ipc_mode": ("IpcMode", convert.text),
    "pid_mode": ("PidMode", convert.text),
    "pids_limit": ("PidsLimit", convert.number),
    "cap_add": ("CapAdd", convert.texts),
    "cap_drop": ("CapDrop", convert.texts),
    "security_opt": ("SecurityOpt", convert.texts),
    "group_add": ("GroupAdd", convert.texts),
    "extra_hosts": ("ExtraHosts", convert.hosts),
    "dns": ("Dns", convert.texts),
    "ulimits": ("Ulimits", convert.limits),
    "sysctls": ("Sysctls", convert.options),
    "read_only": ("ReadonlyRootfs", convert.boolean),
    "runtime": ("Runtime", convert.text),
    "storage_opt": ("StorageOpt", convert.options),
    "oom_score_adj": ("OomScoreAdj", convert.number),
    "ports": ("PortBindings", convert.ports),
}
OPTIONS = frozenset({*_CONFIG, *_HOST, "name", "detach"})
"""The container options, named as in the ``docker`` package."""
_ENGINE_OPTIONS = {**_CONFIG, **_HOST}


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Checks the names and values of container options.

    Raises:
        UsageError: an option is unknown or has an invalid value.
    """
    for name, value in options.items():
        if name not in OPTIONS:
            raise UsageError(
                f"unknown container option `{name}` {where}",
                hint=did_you_mean(name, OPTIONS, "options are named as in the docker package"),
            )
        if value is not None and name in _ENGINE_OPTIONS:
            _converted(name, value, where)


def _converted(name: str, value: Any, where: str) -> tuple[str, Any]:
    key, converter = _ENGINE_OPTIONS[name]
    try:
        return key, converter(value)
    except convert.WrongValueError as expected:
        raise UsageError(f"the container option `{name}` {where} is {value!r}, expected {expected}") from None


def to_body(image: str, command: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of the request that creates a container.

    Args:
        image: the image.
        command: the program and its arguments.
        options: other options, named as in ``containers.run`` of the ``docker`` package.

    Raises:
        UsageError: an option is unknown or has an invalid value.
    """
    where = "in the request"
    check_options(dict.fromkeys(options), where)
    body: dict[str, Any] = {"Image": image, "Cmd": list(command)}
    host: dict[str, Any] = {}
    for name, value in options.items():
        if name in _ENGINE_OPTIONS and value is not None:
            key, converted = _converted(name, value, where)
            (body if name in _CONFIG else host)[key] = converted
    if host.get("PortBindings"):
        body["ExposedPorts"] = {port: {} for port in host["PortBindings"]}
    body["HostConfig"] = host
    endpoints = _endpoints(host.get("NetworkMode", ""), options.get("hostname"))
    return {**body, "NetworkingConfig": {"EndpointsConfig": endpoints}} if endpoints else body


def _endpoints(network: str, name: str | None) -> dict[str, Any]:
    """Returns the endpoints of a container; its network alias stays the same when it is renamed."""
    # the built-in networks reject aliases
    if not name or network in ("", *UNNAMED) or network.startswith("container:"):
        return {}
    return {network: {"Aliases": [name]}}


def _normalize_podman(host: dict[str, Any], networks: list[str]) -> None:
    """Fixes, in place, values that Podman reports but does not accept."""
    if host.get("NanoCpus"):
        host |= {"CpuPeriod": 0, "CpuQuota": 0}  # the same limit
    if host.get("NetworkMode") == "bridge" and networks and "bridge" not in networks:
        host["NetworkMode"] = networks[0]
    if host.get("Runtime") == "oci":
        del host["Runtime"]
    limits = host.get("Ulimits") or []
    host["Ulimits"] = [{**one, "Name": one["Name"].lower().removeprefix("rlimit_")} for one in limits]


def next_body(
    inspected: Mapping[str, Any], labels: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the body of the request that creates a replica's next container from its previous one.

    Args:
        inspected: the engine's description of the previous container.
        labels: labels to replace.
        env: environment variables to replace.
    """
    config = dict(inspected["Config"])
    host = dict(inspected["HostConfig"])
    # the same image, by id: a tag may point to another one by now
    config["Image"] = inspected["Image"]
    config["Labels"] = {**(config.get("Labels") or {}), **labels}
    kept = [entry for entry in config.get("Env") or () if entry.partition("=")[0] not in env]
    config["Env"] = [*kept, *(f"{name}={value}" for name, value in env.items())]
    networks = list(inspected.get("NetworkSettings", {}).get("Networks") or {})
    _normalize_podman(host, networks)
    network = host.get("NetworkMode", "")
    endpoints = _endpoints(network, config.get("Hostname")) if network in networks else {}
    return {**config, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": endpoints}}
