"""The request for a Docker engine: one container for each replica, as plain data."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.machine.ports import port_variable
from torchx.schedulers.devices import get_device_mounts
from torchx.schedulers.docker.checks import note_on_bytes, notes_of
from torchx.schedulers.docker.container_body import Environment, body_field
from torchx.schedulers.docker.container_options import Options, apply_options, reserved_in
from torchx.schedulers.docker.engine.address import find_address
from torchx.schedulers.ids import make_unique
from torchx.scheduling.base import replica_variables, replicas_of
from torchx.scheduling.limits import LimitRule
from torchx.scheduling.preflight import with_checks
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.mounts import BindMount, DeviceMount, TmpfsMount, VolumeMount
from torchx.specs.run_options import RunOptions
from torchx.version import __version__

with lazy_imports:
    from torchx import yaml_limits
    from torchx.schedulers.docker import heartbeats, image_plan
    from torchx.services import rules

if TYPE_CHECKING:
    from torchx.json_limits import Data, Object
    from torchx.schedulers.docker.image_plan import ImagePlan

NETWORK = "torchx"
LABEL = "torchx.pytorch.org/"
LONGEST_ID, LONGEST_ROLE = 30, 30
"""Maximum characters of the app id and the role in a container's name, which is also its host name."""
LONGEST_NAME = 63
"""Maximum characters of a host name."""
CHECKPOINTS = "/torchx-checkpoints"
"""The folder for checkpoints in containers."""
RENDEZVOUS = "c10d"
"""Name of the port that only replicas use: it is not published on the machine."""
OWN = "local_docker"
"""Key in the metadata of a role: more options of its containers, named as in the ``docker`` package or in the
engine's API."""


@dataclass
class DockerContainer:
    """One container.

    Attributes:
        name: its name.
        body: the body of the engine's request that creates it, in the engine's own JSON.
        image: the image, a field of the body.
        command: the program and its arguments, a field of the body.
    """

    name: str
    body: Object
    image = body_field("Image")
    command = body_field("Cmd")

    @property
    def environment(self) -> Environment:
        """The environment variables, a view of the body."""
        return Environment(self.body["Env"])

    @property
    def kwargs(self) -> Options:
        """The options, named as in ``containers.run`` of the ``docker`` package; a view of the body."""
        return Options(self.name, self.body)


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


def dry_run(app: AppDef, cfg: RunOptions) -> AppDryRunInfo[DockerJob]:
    """Returns the request for an application, with notes; contacts no engine."""
    builds: list[ImagePlan] = []
    notes: list[str] = []
    if any(role.workspace for role in app.roles):
        builds, notes = image_plan.plan_images(app, cfg)
    info = AppDryRunInfo(to_request(app, make_unique(app.name), cfg, builds), as_text)
    info.notes += notes + notes_of(app) + LimitRule.of(cfg).notes("local_docker")
    info.notes += note_on_bytes(container.body for container in info.request.containers)
    return info


def to_request(app: AppDef, app_id: str, cfg: RunOptions, builds: Iterable[ImagePlan] = ()) -> DockerJob:
    """Returns the containers of an application, without side effects.

    Args:
        app: the application; not changed.
        app_id: its id.
        cfg: run options.
        builds: the images to build for its workspaces.
    """
    job = DockerJob(app_id, builds=list(builds))
    common = {"Privileged": bool(cfg.get("privileged")), "Init": True, "NetworkMode": NETWORK}
    # the engine of another machine cannot mount a file of this one: there, output alone is progress
    is_near = bool(find_address().path)
    seen, taken = dict[str, str](), set[int]()
    checkpoints = _checkpoints(LimitRule.of(cfg), app, app_id)
    hosts = _hosts(app, app_id)
    defaults, reserved = _common_env(app, app_id, cfg, hosts, bool(checkpoints))
    for role, replica, filled in replicas_of(
        app, app_id=app_id, img_root="", rank0_env=settings.TORCHX_RANK0_HOST, hosts=hosts
    ):
        name = container_name(app_id, role.name, replica)
        if seen.setdefault(name, role.name) != role.name:
            raise UsageError(
                f"containers of the roles `{seen[name]}` and `{role.name}` would have the same name, {name}",
                hint=f"use names that differ in letters or digits in the first {LONGEST_ROLE} characters",
            )
        env = {**defaults, **_replica_env(role, replica, filled), **reserved}
        body = {
            "Image": role.image,
            "Cmd": with_checks(
                [filled.entrypoint, *filled.args], role, cfg, container_name(app_id, role.name, 0)
            ),
            "Hostname": name,
            # as on other engines, the role's entrypoint replaces that of the image
            "Entrypoint": [],
            "Env": [f"{variable}={value}" for variable, value in env.items()],
            "Labels": _labels(app_id, role, replica),
            "HostConfig": {
                **common,
                **_mounts(role, [dict(mount) for mount in checkpoints]),
                **_resources(role),
                **_published(role, replica, taken),
            },
        }
        apply_options(body, *_own_options(role))
        if is_near:
            heartbeats.mount(body, app_id, len(job.containers), cfg)
        job.containers.append(DockerContainer(name, body))
    return job


def _common_env(
    app: AppDef, app_id: str, cfg: RunOptions, hosts: Mapping[str, str], has_checkpoints: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the variables of all replicas: those that a role can set as well, and those that it cannot.

    Args:
        app: the application.
        app_id: its id.
        cfg: run options.
        hosts: the host names of each role.
        has_checkpoints: whether a folder for checkpoints is mounted.
    """
    addresses = {}
    if len(hosts) > 1:
        addresses = rules.addresses(app, hosts)
    return {**settings.REPLICA_DEFAULTS, **_inherited_env(cfg), **addresses}, {
        settings.TORCHX_RANK0_HOST: container_name(app_id, app.roles[0].name, 0) if app.roles else "",
        settings.TORCHX_ATTEMPT: "1",
        **LimitRule.of(cfg).variables(1, None),
        **({settings.TORCHX_CHECKPOINT_DIR: CHECKPOINTS} if has_checkpoints else {}),
    }


def _replica_env(role: Role, replica: int, filled: Role) -> dict[str, str]:
    """Returns the variables of one replica; its role's environment has the macros replaced."""
    return {
        **{port_variable(port): str(number) for port, number in role.port_map.items()},
        **filled.env,
        settings.TORCHX_IMAGE: role.image,
        **replica_variables(role.name, replica, role.num_replicas),
    }


def _labels(app_id: str, role: Role, replica: int) -> dict[str, str]:
    return {
        f"{LABEL}version": __version__,
        f"{LABEL}app-id": app_id,
        f"{LABEL}role-name": role.name,
        f"{LABEL}replica-id": str(replica),
    }


def _hosts(app: AppDef, app_id: str) -> dict[str, str]:
    """Returns the host names of each role, separated by commas."""
    names = {
        role.name: [container_name(app_id, role.name, n) for n in range(role.num_replicas)]
        for role in app.roles
    }
    return {role: ",".join(hosts) for role, hosts in names.items()}


def container_name(app_id: str, role: str, replica: int) -> str:
    """Returns the name of a replica's container; a long id is cut at its start, as its end is unique.

    >>> container_name("a-very-long-name-of-an-application-b1", "trainer", 0)
    'long-name-of-an-application-b1-trainer-0'
    >>> container_name("a-b1", "data.", 0)
    'a-b1-data-0'
    """
    rest = f"-{re.sub(r'[^A-Za-z0-9_.-]', '-', role[:LONGEST_ROLE])}-{replica}"
    name = app_id[-min(LONGEST_ID, LONGEST_NAME - len(rest)) :] + rest
    return without_end_dots(name).lstrip("-_.")


def without_end_dots(name: str) -> str:
    """Returns a name whose parts do not end with a dot before a dash, which no host name allows."""
    return re.sub(r"\.+-", "-", name)


def as_text(job: DockerJob) -> str:
    """Returns the containers as YAML."""
    containers = [{"name": c.name, **c.body} for c in job.containers]
    builds = [
        {
            "image": b.name,
            "base": b.base,
            "workspace": b.workspace,
            "by": b.dockerfile or "COPY . .",
            "files": b.tree.files,
            "bytes": b.tree.size,
            "push": b.push,
            "when": b.when,
        }
        for b in job.builds
    ]
    data = {"app_id": job.app_id, **({"builds": builds} if builds else {}), "containers": containers}
    return yaml_limits.dump(data, width=100).rstrip()


def _inherited_env(cfg: RunOptions) -> dict[str, str]:
    patterns, env = cfg.get("copy_env"), cfg.get("env")
    copied = {
        name: value
        for name, value in os.environ.items()
        if isinstance(patterns, list) and any(fnmatch.fnmatchcase(name, p) for p in patterns)
    }
    return {**copied, **(env if isinstance(env, dict) else {})}


def _own_options(role: Role) -> tuple[Data, str]:
    """Returns the container options in a role's metadata, and their place for error messages.

    Raises:
        UsageError: they are not a mapping, or one is reserved for the scheduler.
    """
    options = role.metadata.get(OWN) or {}
    where = f"in the metadata of role `{role.name}`"
    if not isinstance(options, Mapping):
        raise UsageError(f"`{OWN}` {where} is {options!r}, expected options of containers by name")
    reserved = reserved_in(options)
    if reserved:
        raise UsageError(f"the container option `{reserved}` {where} can only be set by the scheduler")
    return options, where


def checkpoint_volume(app_id: str) -> str:
    """Returns the name of the volume for the checkpoints of an application."""
    return f"torchx-{app_id}"


def _checkpoints(rule: LimitRule, app: AppDef, app_id: str) -> list[Object]:
    """Returns the mount of the folder for checkpoints: the given folder, or a volume of the application."""
    if rule.is_empty and not any(role.max_retries for role in app.roles):
        return []
    if rule.checkpoint_dir:
        return [_mount("bind", rule.checkpoint_dir, CHECKPOINTS, False)]
    return [_mount("volume", checkpoint_volume(app_id), CHECKPOINTS, False)]


def _mounts(role: Role, mounts: list[Object]) -> Object:
    devices = get_device_mounts(role.resource.devices)
    for mount in role.mounts:
        if isinstance(mount, BindMount):
            mounts.append(_mount("bind", mount.src_path, mount.dst_path, mount.read_only))
        elif isinstance(mount, VolumeMount):
            mounts.append(_mount("volume", mount.src, mount.dst_path, mount.read_only))
        elif isinstance(mount, TmpfsMount):
            if mount.size_mb is None:
                size = {}
            else:
                size = {"TmpfsOptions": {"SizeBytes": mount.size_mb << 20}}
            mounts.append({"Type": "tmpfs", "Target": mount.dst_path, **size})
        elif isinstance(mount, DeviceMount):
            devices.append(mount)
    shown = [
        {"PathOnHost": d.src_path, "PathInContainer": d.dst_path, "CgroupPermissions": d.permissions}
        for d in devices
    ]
    return {**({"Mounts": mounts} if mounts else {}), **({"Devices": shown} if shown else {})}


def _mount(kind: str, source: str, target: str, read_only: bool) -> Object:
    return {"Type": kind, "Source": source, "Target": target, "ReadOnly": read_only}


def _resources(role: Role) -> Object:
    resource = role.resource
    options: Object = {}
    if resource.memMB > 0:
        # the same limit with swap: otherwise a replica over its limit would be slowed instead of stopped
        options = dict.fromkeys(("Memory", "MemorySwap", "ShmSize"), int(resource.memMB) << 20)
    if resource.cpu > 0:
        options["NanoCpus"] = int(resource.cpu * 1e9)
    if resource.gpu > 0:
        options["DeviceRequests"] = [{"Count": resource.gpu, "Capabilities": [["compute", "utility"]]}]
    return options


def _published(role: Role, replica: int, taken: set[int]) -> Object:
    """Returns the option that publishes the ports of a replica.

    A machine has each port once: that of another replica, or of another role, is published on any free one.

    Args:
        role: the role.
        replica: the replica.
        taken: the ports that are published with their own number; updated.
    """
    ports = [port for name, port in role.port_map.items() if name != RENDEZVOUS]
    own = set() if replica else set(ports) - taken
    taken |= own
    bindings = {f"{port}/tcp": [{"HostPort": str(port) if port in own else ""}] for port in ports}
    if bindings:
        return {"PortBindings": bindings}
    return {}
