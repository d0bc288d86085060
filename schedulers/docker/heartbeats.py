"""The heartbeats and the steps of containers, in files of their application's folder that they mount."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.jobs.paths import Home, user_home
from torchx.machine import files
from torchx.scheduling.stalls import SLOT_SIZE
from torchx.stragglers import slots
from torchx.stragglers.record import MEMORY, STRAGGLER

if TYPE_CHECKING:
    from torchx.json_limits import Object

TARGETS = "/run/torchx"
"""The folder of the files in containers."""

ANYBODY = 0o666
"""Permissions of the files: a container may run as any user. Its folder is private."""


def _files_of(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yields the files that run options require: the variable, the name, and the bytes of a replica."""
    if cfg.get("stall"):
        yield settings.TORCHX_HEARTBEAT, "heartbeats", SLOT_SIZE
    if cfg.get("stall") or cfg.get(STRAGGLER):
        yield slots.VARIABLE, MEMORY, slots.PAGE


def mount(body: Object, app_id: str, ordinal: int, cfg: Mapping[str, Any]) -> None:
    """Adds the mounts of the heartbeats and the steps to the body of a container.

    Args:
        body: the body of the engine's request, changed in place.
        app_id: the application.
        ordinal: the replica.
        cfg: the run options.
    """
    folder = Home(user_home()).job(app_id).folder
    for variable, name, size in _files_of(cfg):
        target = f"{TARGETS}/{name}"
        mount = {"Type": "bind", "Source": str(folder / name), "Target": target, "ReadOnly": False}
        body["HostConfig"].setdefault("Mounts", []).append(mount)
        body["Env"].append(f"{variable}={ordinal * size}:{target}")


def create(folder: Path, count: int, cfg: Mapping[str, Any]) -> None:
    """Creates the files that containers mount, in the folder of their application.

    Args:
        folder: the folder.
        count: the number of replicas.
        cfg: the run options.
    """
    for _, name, size in _files_of(cfg):
        files.write_file(folder / name, bytes(size * count))
        (folder / name).chmod(ANYBODY)
