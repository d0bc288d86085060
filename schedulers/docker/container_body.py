"""What a container is made from: the engine's own words for the options of a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.schedulers.docker import container_options as words
from torchx.suggestions import did_you_mean

UNNAMED = ("none", "host", "bridge", "default")
"""Networks of every engine, in which containers have no names."""

_Words = Mapping[str, tuple[str, Callable[[Any], Any]]]

_CONFIG: _Words = {
    "hostname": ("Hostname", words.text),
    "domainname": ("Domainname", words.text),
    "user": ("User", words.text),
    "environment": ("Env", words.environment),
    "labels": ("Labels", words.mapping),
    "working_dir": ("WorkingDir", words.text),
    "entrypoint": ("Entrypoint", words.program),
    "stop_signal": ("StopSignal", words.text),
    "healthcheck": ("Healthcheck", words.words_of("Test Interval Timeout Retries StartPeriod StartInterval")),
}
_HOST: _Words = {
    "privileged": ("Privileged", words.yes_or_no),
    "init": ("Init", words.yes_or_no),
    "mem_limit": ("Memory", words.size),
    "memswap_limit": ("MemorySwap", words.size),
    "mem_reservation": ("MemoryReservation", words.size),
    "shm_size": ("ShmSize", words.size),
    "nano_cpus": ("NanoCpus", words.number),
    "cpuset_cpus": ("CpusetCpus", words.text),
    "mounts": ("Mounts", words.mappings),
    "volumes": ("Binds", words.volumes),
    "tmpfs": ("Tmpfs", words.tmpfs),
    "devices": ("Devices", words.devices),
    "device_requests": ("DeviceRequests", words.mappings),
    "device_cgroup_rules": ("DeviceCgroupRules", words.texts),
    "restart_policy": ("RestartPolicy", words.mapping),
    "network": ("NetworkMode", words.text),
    "network_mode": ("NetworkMode", words.text),
    "ipc_mode": ("IpcMode", words.text),
    "pid_mode": ("PidMode", words.text),
    "pids_limit": ("PidsLimit", words.number),
    "cap_add": ("CapAdd", words.texts),
    "cap_drop": ("CapDrop", words.texts),
    "security_opt": ("SecurityOpt", words.texts),
    "group_add": ("GroupAdd", words.texts),
    "extra_hosts": ("ExtraHosts", words.hosts),
    "dns": ("Dns", words.texts),
    "ulimits": ("Ulimits", words.limits),
    "sysctls": ("Sysctls", words.options),
    "read_only": ("ReadonlyRootfs", words.yes_or_no),
    "runtime": ("Runtime", words.text),
    "storage_opt": ("StorageOpt", words.options),
    "oom_score_adj": ("OomScoreAdj", words.number),
    "ports": ("PortBindings", words.ports),
}
OPTIONS = frozenset({*_CONFIG, *_HOST, "name", "detach"})
"""The options of a container, by the names of the ``docker`` package."""
_WORDS = {**_CONFIG, **_HOST}


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Refuses options of containers that are not known, or that are not what they take.

    Raises:
        UsageError: one cannot be right.
    """
    for name, value in options.items():
        if name not in OPTIONS:
            raise UsageError(
                f"unknown container option `{name}` {where}",
                hint=did_you_mean(name, OPTIONS, "the names are those of the docker package"),
            )
        if value is not None and name in _WORDS:
            _told(name, value, where)


def _told(name: str, value: Any, where: str) -> tuple[str, Any]:
    key, convert = _WORDS[name]
    try:
        return key, convert(value)
    except words.WrongValueError as expected:
        raise UsageError(f"the container option `{name}` {where} is {value!r}, expected {expected}") from None


def to_body(image: str, command: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the engine is sent to make a container.

    Args:
        image: the image.
        command: the program and its arguments.
        options: all else, by the names of the ``docker`` package's ``containers.run``.

    Raises:
        UsageError: an option is not known here, or not what it takes.
    """
    where = "in the request"
    check_options(dict.fromkeys(options), where)
    body: dict[str, Any] = {"Image": image, "Cmd": list(command)}
    host: dict[str, Any] = {}
    for name, value in options.items():
        if name in _WORDS and value is not None:
            key, told = _told(name, value, where)
            (body if name in _CONFIG else host)[key] = told
    if host.get("PortBindings"):
        body["ExposedPorts"] = {port: {} for port in host["PortBindings"]}
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


def next_body(
    inspected: Mapping[str, Any], labels: Mapping[str, str], env: Mapping[str, str]
) -> dict[str, Any]:
    """Returns what the engine is sent to make a container once more, from what it says of the old one.

    Args:
        inspected: what the engine says of it.
        labels: labels that differ.
        env: variables of the environment that differ.
    """
    config = dict(inspected["Config"])
    host = dict(inspected["HostConfig"])
    # the very image of before: a tag may have moved on
    config["Image"] = inspected["Image"]
    config["Labels"] = {**(config.get("Labels") or {}), **labels}
    kept = [entry for entry in config.get("Env") or () if entry.partition("=")[0] not in env]
    config["Env"] = [*kept, *(f"{name}={value}" for name, value in env.items())]
    networks = list(inspected.get("NetworkSettings", {}).get("Networks") or {})
    _as_docker_says_it(host, networks)
    network = host.get("NetworkMode", "")
    endpoints = _endpoints(network, config.get("Hostname")) if network in networks else {}
    return {**config, "HostConfig": host, "NetworkingConfig": {"EndpointsConfig": endpoints}}
