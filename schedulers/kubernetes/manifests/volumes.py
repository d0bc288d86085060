"""Volumes of a pod: files of the node, volumes of the cluster, devices, shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torchx.errors import UsageError
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.specs.app import Role
from torchx.specs.mounts import BindMount, DeviceMount, Mount, TmpfsMount, VolumeMount

SHM = "/dev/shm"  # noqa: S108 (a path in a container)


@dataclass
class Volumes:
    """The volumes of a pod.

    Attributes:
        volumes: the volumes of the pod.
        mounts: their mounts in the container.
        privileged: whether the container must be privileged.
    """

    volumes: list[Object] = field(default_factory=list)
    mounts: list[Object] = field(default_factory=list)
    privileged: bool = False

    def add(self, name: str, source: Object, path: str, read_only: bool = False) -> None:
        """Adds a volume.

        Args:
            name: its name within the pod.
            source: the source of the volume in the API.
            path: its path in the container.
            read_only: whether it is read-only.
        """
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})


def volumes_of(role: Role) -> Volumes:
    """Returns the volumes of a role's pods.

    Raises:
        UsageError: a mount is not possible, or two have the same path.
    """
    volumes = Volumes()
    paths = [mount.dst_path for mount in role.mounts]
    for path in paths:
        _check(role, path, paths)
    if SHM not in (path.rstrip("/") for path in paths):
        # PyTorch's data loaders use shared memory: limited only by the memory of the container
        volumes.add("dshm", {"emptyDir": {"medium": "Memory"}}, SHM)
    for number, mount in enumerate(role.mounts):
        _add(volumes, f"mount-{number}", mount, role)
    return volumes


def _add(volumes: Volumes, name: str, mount: Mount, role: Role) -> None:
    if isinstance(mount, BindMount):
        volumes.add(
            name, {"hostPath": {"path": _host(role, mount.src_path)}}, mount.dst_path, mount.read_only
        )
    elif isinstance(mount, VolumeMount):
        volumes.add(
            name, {"persistentVolumeClaim": {"claimName": mount.src}}, mount.dst_path, mount.read_only
        )
    elif isinstance(mount, TmpfsMount):
        if mount.size_mb is None:
            size = {}
        else:
            size = {"sizeLimit": f"{mount.size_mb}Mi"}
        volumes.add(name, {"emptyDir": {"medium": "Memory", **size}}, mount.dst_path)
    elif isinstance(mount, DeviceMount):
        volumes.privileged = True
        path = _host(role, mount.src_path)
        volumes.add(name, {"hostPath": {"path": path}}, mount.dst_path, "w" not in mount.permissions)
    else:
        raise UsageError(
            f"role `{role.name}` has a {type(mount).__name__}, which cannot be mounted on Kubernetes"
        )


def _check(role: Role, path: str, paths: list[str]) -> None:
    if not path.startswith("/") or ":" in path:
        raise UsageError(
            f"role `{role.name}` mounts to `{path}`; Kubernetes needs an absolute path without `:`",
            hint="e.g. dst=/data",
        )
    if paths.count(path) > 1:
        raise UsageError(f"role `{role.name}` mounts to `{path}` twice")


def _host(role: Role, path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/"):
        raise UsageError(
            f"role `{role.name}` mounts `{path}`; Kubernetes needs an absolute path on the node without `..`"
        )
    return path


def notes_of(role: Role) -> Iterator[str]:
    """Yields notes on the mounts of a role."""
    if any(isinstance(mount, DeviceMount) for mount in role.mounts):
        yield f"role {role.name} mounts devices, so its containers are privileged: all rights of the node"
