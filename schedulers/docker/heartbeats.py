"""The heartbeats of containers, in a file of their application's folder that they mount."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torchx import settings
from torchx.jobs.paths import Home, JobPaths, user_home
from torchx.machine import files
from torchx.scheduling.stalls import SLOT_SIZE

if TYPE_CHECKING:
    from torchx.json_limits import Object

TARGET = "/run/torchx/heartbeats"
"""The file with the heartbeats in containers."""

ANYBODY = 0o666
"""Permissions of the heartbeats: a container may run as any user. Its folder is private."""


def mount(body: Object, app_id: str, ordinal: int) -> None:
    """Adds the mount of the heartbeats to the body of a container.

    Args:
        body: the body of the engine's request, changed in place.
        app_id: the application.
        ordinal: the replica.
    """
    source = str(Home(user_home()).job(app_id).heartbeats)
    mount = {"Type": "bind", "Source": source, "Target": TARGET, "ReadOnly": False}
    body["HostConfig"].setdefault("Mounts", []).append(mount)
    body["Env"].append(f"{settings.TORCHX_HEARTBEAT}={ordinal * SLOT_SIZE}:{TARGET}")


def create(folder: Path, count: int) -> None:
    """Creates the file that containers mount, in the folder of their application.

    Args:
        folder: the folder.
        count: the number of replicas.
    """
    path = JobPaths(folder).heartbeats
    files.write_file(path, bytes(SLOT_SIZE * count))
    path.chmod(ANYBODY)
