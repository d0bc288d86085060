"""What is sent to a Docker engine: one container for each replica, as plain data."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx import settings
from torchx.scheduler import replicas_of
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.mounts import BindMount, DeviceMount, VolumeMount
from torchx.specs.run_options import CfgVal
from torchx.version import __version__

NETWORK = "torchx"
LABEL = "torchx.pytorch.org/"
LONGEST_ID, LONGEST_ROLE = 30, 30
"""Characters of the app id and of the role that go into a container's name, which is also its host name."""


@dataclass
class DockerContainer:
    """One container.

    Attributes:
        image: the image.
        command: the program and its arguments.
        kwargs: all else, by the argument names of the ``docker`` package's ``containers.run``.
    """

    image: str
    command: list[str]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class DockerJob:
    """All containers of one application.

    Attributes:
        app_id: the id it will have.
        containers: one for each replica.
    """

    app_id: str
    containers: list[DockerContainer] = field(default_factory=list)


def to_request(app: AppDef, app_id: str, cfg: Mapping[str, CfgVal]) -> DockerJob:
    """Returns the containers of an application; touches nothing."""
    job = DockerJob(app_id)
    rank0 = container_name(app_id, app.roles[0].name, 0) if app.roles else ""
    inherited = _inherited_env(cfg)
    for role, replica, filled in replicas_of(
        app, app_id=app_id, img_root="", rank0_env=settings.TORCHX_RANK0_HOST
    ):
        name = container_name(app_id, role.name, replica)
        env = {
            **inherited,
            **filled.env,
            settings.TORCHX_RANK0_HOST: rank0,
            settings.TORCHX_IMAGE: role.image,
        }
        kwargs: dict[str, Any] = {
            "name": name,
            "hostname": name,
            "detach": True,
            "init": True,
            "network": NETWORK,
            "environment": env,
            "labels": {
                f"{LABEL}version": __version__,
                f"{LABEL}app-id": app_id,
                f"{LABEL}role-name": role.name,
                f"{LABEL}replica-id": str(replica),
            },
            "privileged": bool(cfg.get("privileged")),
            **_mounts(role),
            **_resources(role),
        }
        if role.max_retries and role.retry_policy is RetryPolicy.REPLICA:
            kwargs["restart_policy"] = {"Name": "on-failure", "MaximumRetryCount": role.max_retries}
        job.containers.append(DockerContainer(role.image, [filled.entrypoint, *filled.args], kwargs))
    return job


def container_name(app_id: str, role: str, replica: int) -> str:
    """Returns the name of a replica's container; the end of a long id is kept, where it is unique."""
    return f"{app_id[-LONGEST_ID:]}-{role[:LONGEST_ROLE]}-{replica}".lstrip("-_.")


def as_text(job: DockerJob) -> str:
    """Returns the containers as YAML."""
    import yaml  # on demand: only a dry-run shows it

    containers = [{"image": c.image, "command": c.command, **c.kwargs} for c in job.containers]
    text: str = yaml.safe_dump({"app_id": job.app_id, "containers": containers}, sort_keys=False, width=100)
    return text.rstrip()


def _inherited_env(cfg: Mapping[str, CfgVal]) -> dict[str, str]:
    patterns, env = cfg.get("copy_env"), cfg.get("env")
    copied = {
        name: value
        for name, value in os.environ.items()
        if isinstance(patterns, list) and any(fnmatch.fnmatchcase(name, p) for p in patterns)
    }
    return {**copied, **(env if isinstance(env, dict) else {})}


def _mounts(role: Role) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = []
    devices: list[str] = []
    for mount in role.mounts:
        if isinstance(mount, BindMount):
            mounts.append(_mount("bind", mount.src_path, mount.dst_path, mount.read_only))
        elif isinstance(mount, VolumeMount):
            mounts.append(_mount("volume", mount.src, mount.dst_path, mount.read_only))
        elif isinstance(mount, DeviceMount):
            devices.append(f"{mount.src_path}:{mount.dst_path}:{mount.permissions}")
    return {**({"mounts": mounts} if mounts else {}), **({"devices": devices} if devices else {})}


def _mount(kind: str, source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}


def _resources(role: Role) -> dict[str, Any]:
    resource = role.resource
    wanted: dict[str, Any] = {}
    if resource.memMB > 0:
        # the same limit with swap: else a replica that asks for too much is slowed, not stopped
        wanted = dict.fromkeys(("mem_limit", "memswap_limit", "shm_size"), f"{int(resource.memMB)}m")
    if resource.cpu > 0:
        wanted["nano_cpus"] = int(resource.cpu * 1e9)
    if resource.gpu > 0:
        wanted["device_requests"] = [{"Count": resource.gpu, "Capabilities": [["compute", "utility"]]}]
    if role.port_map:
        wanted["ports"] = {f"{port}/tcp": port for port in role.port_map.values()}
    return wanted
