"""The body of the engine's request that creates a container, in the engine's own JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from torchx.json_limits import Data, Object

UNNAMED = ("", "none", "host", "bridge", "default")
"""The engine's built-in networks, which do not resolve container names and reject aliases."""


class Environment(MutableMapping[str, str]):
    """Environment variables by name: a view of a list of ``NAME=value``.

    >>> lines = ["A=1", "B="]
    >>> Environment(lines).update(B="x=y", C="3")
    >>> lines
    ['A=1', 'B=x=y', 'C=3']
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines

    def _read(self) -> dict[str, str]:
        return dict(line.partition("=")[::2] for line in self._lines)

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __setitem__(self, name: str, value: str) -> None:
        self._lines[:] = [f"{n}={v}" for n, v in {**self._read(), name: value}.items()]

    def __delitem__(self, name: str) -> None:
        self._lines[:] = [line for line in self._lines if line.partition("=")[0] != name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def body_field(key: str) -> Any:
    """Returns a property of an object with a body: one of the body's fields."""
    return property(lambda self: self.body[key], lambda self, value: self.body.update({key: value}))


def networking(body: Data) -> Object:
    """Returns the endpoints of a container; its network alias stays the same when it is renamed."""
    network, name = body["HostConfig"].get("NetworkMode", ""), body.get("Hostname")
    if not name or network in UNNAMED or network.startswith("container:"):
        return {"EndpointsConfig": {}}
    return {"EndpointsConfig": {network: {"Aliases": [name]}}}


def _normalize_podman(host: Object, networks: list[str]) -> None:
    """Fixes, in place, values that Podman reports but does not accept."""
    if host.get("NanoCpus"):
        host |= {"CpuPeriod": 0, "CpuQuota": 0}  # the same limit
    if host.get("NetworkMode") == "bridge" and networks and "bridge" not in networks:
        host["NetworkMode"] = networks[0]
    if host.get("Runtime") == "oci":
        del host["Runtime"]
    limits = host.get("Ulimits") or []
    host["Ulimits"] = [{**one, "Name": one["Name"].lower().removeprefix("rlimit_")} for one in limits]


def next_body(inspected: Data, labels: Mapping[str, str], env: Mapping[str, str]) -> Object:
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
    config["Env"] = list(config.get("Env") or ())
    Environment(config["Env"]).update(env)
    networks = list(inspected.get("NetworkSettings", {}).get("Networks") or {})
    _normalize_podman(host, networks)
    network = host.get("NetworkMode", "")
    body = {**config, "HostConfig": host}
    return {**body, "NetworkingConfig": networking(body) if network in networks else {"EndpointsConfig": {}}}
