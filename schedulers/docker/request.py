"""The request for a Docker engine: one container for each replica, as plain data."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.errors import UsageError
from torchx.machine.ports import port_variable
from torchx.schedulers.devices import get_device_mounts
from torchx.schedulers.docker.checks import notes_of
from torchx.schedulers.docker.container_body import check_options
from torchx.schedulers.ids import make_unique
from torchx.scheduling.base import replicas_of
from torchx.specs.app import AppDef, AppDryRunInfo, RetryPolicy, Role
from torchx.specs.mounts import BindMount, DeviceMount, TmpfsMount, VolumeMount
from torchx.specs.run_options import CfgVal
from torchx.version import __version__

if TYPE_CHECKING:
    from torchx.schedulers.docker.images.plan import ImagePlan

NETWORK = "torchx"
LABEL = "torchx.pytorch.org/"
LONGEST_ID, LONGEST_ROLE = 30, 30
"""Maximum characters of the app id and the role in a container's name, which is also its host name."""
LONGEST_NAME = 63
"""Maximum characters of a host name."""
RENDEZVOUS = "c10d"
"""Name of the port that only replicas use: it is not published on the machine."""
OWN = "local_docker"
"""Key in the metadata of a role: more options of its containers, named as in the ``docker`` package."""


@dataclass
class DockerContainer:
    """One container.

    Attributes:
        image: the image.
        command: the program and its arguments.
        kwargs: other arguments, named as in ``containers.run`` of the ``docker`` package.
    """

    image: str
    command: list[str]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class DockerJob:
    """All containers of one application.

    Attributes:
        app_id: the id of the application.
        containers: one for each replica.
        builds: the images with workspaces to build.
    """

    app_id: str
    containers: list[DockerContainer] = field(default_factory=list)
    builds: list[ImagePlan] = field(default_factory=list)


def dry_run(app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[DockerJob]:
    """Returns the request for an application, with notes; contacts no engine."""
    builds: list[ImagePlan] = []
    notes: list[str] = []
    if any(role.workspace for role in app.roles):
        from torchx.schedulers.docker.images.plan import plan_images  # on demand: few requests have images

        builds, notes = plan_images(app, cfg)
    info = AppDryRunInfo(to_request(app, make_unique(app.name), cfg, builds), as_text)
    info.notes += notes + notes_of(app)
    return info


def to_request(
    app: AppDef, app_id: str, cfg: Mapping[str, CfgVal], builds: Iterable[ImagePlan] = ()
) -> DockerJob:
    """Returns the containers of an application, without side effects.

    Args:
        app: the application; not changed.
        app_id: its id.
        cfg: run options.
        builds: the images to build for its workspaces.
    """
    job = DockerJob(app_id, builds=list(builds))
    rank0 = container_name(app_id, app.roles[0].name, 0) if app.roles else ""
    inherited = _inherited_env(cfg)
    seen: dict[str, str] = {}
    for role, replica, filled in replicas_of(
        app, app_id=app_id, img_root="", rank0_env=settings.TORCHX_RANK0_HOST
    ):
        name = container_name(app_id, role.name, replica)
        if seen.setdefault(name, role.name) != role.name:
            raise UsageError(
                f"containers of the roles `{seen[name]}` and `{role.name}` would have the same name, {name}",
                hint=f"use names that differ in letters or digits in the first {LONGEST_ROLE} characters",
            )
        env = {
            **inherited,
            **{port_variable(port): str(number) for port, number in role.port_map.items()},
            **filled.env,
            settings.TORCHX_RANK0_HOST: rank0,
            settings.TORCHX_IMAGE: role.image,
            settings.TORCHX_REPLICA: f"{role.name}/{replica}",
            settings.TORCHX_ATTEMPT: "1",
        }
        kwargs: dict[str, Any] = {
            "name": name,
            "hostname": name,
            "detach": True,
            "init": True,
            # as on other engines, the role's entrypoint replaces that of the image
            "entrypoint": [],
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
            **_resources(role, replica),
        }
        kwargs |= _own_options(role)
        if role.max_retries and role.retry_policy is RetryPolicy.REPLICA:
            kwargs["restart_policy"] = {"Name": "on-failure", "MaximumRetryCount": role.max_retries}
            # the engine restarts the same container with the same environment
            del env[settings.TORCHX_ATTEMPT]
        job.containers.append(DockerContainer(role.image, [filled.entrypoint, *filled.args], kwargs))
    return job


def container_name(app_id: str, role: str, replica: int) -> str:
    """Returns the name of a replica's container; a long id is cut at its start, as its end is unique.

    >>> container_name("a-very-long-name-of-an-application-b1", "trainer", 0)
    'long-name-of-an-application-b1-trainer-0'
    """
    rest = f"-{re.sub(r'[^A-Za-z0-9_.-]', '-', role[:LONGEST_ROLE])}-{replica}"
    return (app_id[-min(LONGEST_ID, LONGEST_NAME - len(rest)) :] + rest).lstrip("-_.")


def as_text(job: DockerJob) -> str:
    """Returns the containers as YAML."""
    import yaml  # on demand: only a dry-run needs it

    containers = [{"image": c.image, "command": c.command, **c.kwargs} for c in job.containers]
    builds = [
        {"image": b.name, "base": b.base, "workspace": b.workspace, "by": b.dockerfile or "COPY . .",
         "files": b.tree.files, "bytes": b.tree.size, "push": b.push, "when": b.when}
        for b in job.builds
    ]  # fmt: skip
    data = {"app_id": job.app_id, **({"builds": builds} if builds else {}), "containers": containers}
    text: str = yaml.safe_dump(data, sort_keys=False, width=100)
    return text.rstrip()


def _inherited_env(cfg: Mapping[str, CfgVal]) -> dict[str, str]:
    patterns, env = cfg.get("copy_env"), cfg.get("env")
    copied = {
        name: value
        for name, value in os.environ.items()
        if isinstance(patterns, list) and any(fnmatch.fnmatchcase(name, p) for p in patterns)
    }
    return {**copied, **(env if isinstance(env, dict) else {})}


def _own_options(role: Role) -> dict[str, Any]:
    """Returns the container options in a role's metadata.

    Raises:
        UsageError: an option is unknown, or reserved for the scheduler.
    """
    options = role.metadata.get(OWN) or {}
    where = f"in the metadata of role `{role.name}`"
    if not isinstance(options, Mapping):
        raise UsageError(f"`{OWN}` {where} is {options!r}, expected options of containers by name")
    check_options(options, where)
    for name in ("name", "hostname", "labels", "environment", "restart_policy", "detach"):
        if name in options:
            raise UsageError(f"the container option `{name}` {where} can only be set by the scheduler")
    return dict(options)


def _mounts(role: Role) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = []
    devices: list[str] = []
    for mount in role.mounts:
        if isinstance(mount, BindMount):
            mounts.append(_mount("bind", mount.src_path, mount.dst_path, mount.read_only))
        elif isinstance(mount, VolumeMount):
            mounts.append(_mount("volume", mount.src, mount.dst_path, mount.read_only))
        elif isinstance(mount, TmpfsMount):
            size = {} if mount.size_mb is None else {"TmpfsOptions": {"SizeBytes": mount.size_mb << 20}}
            mounts.append({"Type": "tmpfs", "Target": mount.dst_path, **size})
        elif isinstance(mount, DeviceMount):
            devices.append(f"{mount.src_path}:{mount.dst_path}:{mount.permissions}")
    devices += [
        f"{d.src_path}:{d.dst_path}:{d.permissions}" for d in get_device_mounts(role.resource.devices)
    ]
    return {**({"mounts": mounts} if mounts else {}), **({"devices": devices} if devices else {})}


def _mount(kind: str, source: str, target: str, read_only: bool) -> dict[str, Any]:
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}


def _resources(role: Role, replica: int) -> dict[str, Any]:
    resource = role.resource
    options: dict[str, Any] = {}
    if resource.memMB > 0:
        # the same limit with swap: otherwise a replica over its limit would be slowed instead of stopped
        options = dict.fromkeys(("mem_limit", "memswap_limit", "shm_size"), f"{int(resource.memMB)}m")
    if resource.cpu > 0:
        options["nano_cpus"] = int(resource.cpu * 1e9)
    if resource.gpu > 0:
        options["device_requests"] = [{"Count": resource.gpu, "Capabilities": [["compute", "utility"]]}]
    published = [port for name, port in role.port_map.items() if name != RENDEZVOUS]
    if published:
        # a machine has each port once: ports of other replicas are published on any free one
        options["ports"] = {f"{port}/tcp": None if replica else port for port in published}
    return options
