"""The files about the stalls of containers, and the mount of their heartbeats."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from typing import Any

from torchx import settings
from torchx.errors import StateError
from torchx.jobs.paths import file_name, user_home
from torchx.json_limits import Object
from torchx.machine import files
from torchx.schedulers.shared.stalls import StallFolder, StallHistory
from torchx.scheduling.stalls import SLOT_SIZE

TARGET = "/run/torchx/heartbeats"
"""The file with the heartbeats in containers."""

LONGEST_NAME = 200
"""Maximum characters of an id in the name of a folder; its end is kept, since that is unique."""

ANYBODY = 0o666
"""Permissions of the heartbeats: a container may run as any user. Its folder is private."""


def stall_folder(app_id: str) -> StallFolder:
    """Returns the folder about the stalls of an application, which may not exist."""
    return StallFolder(user_home() / "docker" / "stalls" / file_name(app_id)[-LONGEST_NAME:])


def history_of(app_id: str, cfg: Any) -> StallHistory:
    """Returns the recorded stalls of an application; empty if it requests no detection."""
    if not isinstance(cfg, dict) or not cfg.get("stall"):
        return StallHistory()
    try:
        return stall_folder(app_id).read()
    except StateError:  # without a state home
        return StallHistory()


def mount_heartbeats(body: Object, app_id: str, ordinal: int) -> None:
    """Adds the mount of the heartbeats to the body of a container.

    Args:
        body: the body of the engine's request, changed in place.
        app_id: the application.
        ordinal: the replica.
    """
    source = str(stall_folder(app_id).heartbeats)
    mount = {"Type": "bind", "Source": source, "Target": TARGET, "ReadOnly": False}
    body["HostConfig"].setdefault("Mounts", []).append(mount)
    body["Env"].append(f"{settings.TORCHX_HEARTBEAT}={ordinal * SLOT_SIZE}:{TARGET}")


def create(app_id: str, count: int) -> None:
    """Creates the file that containers mount.

    Args:
        app_id: the application.
        count: the number of its replicas.

    Raises:
        StateError: it cannot be created.
    """
    folder = stall_folder(app_id)
    try:
        files.make_folder(folder.path)
        files.write_file(folder.heartbeats, bytes(SLOT_SIZE * count))
        open_to_containers(folder)
    except OSError as error:
        raise StateError(f"the heartbeats cannot be stored at {folder.path}: {error.strerror}") from error


def open_to_containers(folder: StallFolder) -> None:
    """Lets each user of a container write heartbeats."""
    with suppress(OSError):
        folder.heartbeats.chmod(ANYBODY)


def forget(app_id: str) -> None:
    """Removes the files about the stalls of an application."""
    with suppress(StateError):
        folder = stall_folder(app_id).path
        if folder.is_dir() and folder.lstat().st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
