"""Makes folders writable for the user of a container, or finds that they are not; images may name a user."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import tarfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from torchx.json_limits import Data
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel

ALL_RIGHTS = 0o777
_MAPPED = ("name=rootless", "name=userns")
"""Security options of engines that map the users of containers to other users of the machine."""
_ACCESS_LISTS = "system.posix_acl_access"


class User(NamedTuple):
    """The user of a container.

    Attributes:
        name: the name or number, as the image or a container option has it.
        uid: its number; None if unknown.
    """

    name: str
    uid: int | None


def user_of(engine: Engine, container: str) -> User | None:
    """Returns the user of a created container, or None for root.

    Args:
        engine: the engine.
        container: the id of the container.
    """
    inspected = engine.call("GET", f"/containers/{container}/json")
    text = str(inspected["Config"].get("User") or "")
    name = text.partition(":")[0]
    if name in ("", "0", "root"):
        return None
    if re.fullmatch("[0-9]{1,10}", name):
        return User(name, int(name))
    return User(name, _recorded_uid(engine, container, name))


def _recorded_uid(engine: Engine, container: str, name: str) -> int | None:
    """Returns the number of a user in the password file of a container."""
    try:
        archive = engine.call("GET", f"/containers/{container}/archive", {"path": "/etc/passwd"})
    except EngineError:
        return None
    # a tar archive of one file: its text follows zeros
    entry = re.search(rf"(?:^|\0){re.escape(name)}:[^:\n]*:([0-9]{{1,10}}):", str(archive), re.MULTILINE)
    if entry is None:
        return None
    return int(entry[1])


def open_volume(engine: Engine, containers: Sequence[str], folder: str) -> None:
    """Gives all users the rights to a volume that some containers share, before they are started.

    Args:
        engine: the engine.
        containers: the ids of the containers.
        folder: the path of the volume in the containers, directly below the root.
    """
    entry = tarfile.TarInfo(folder.strip("/"))
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, ALL_RIGHTS, time.time()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as writer:
        writer.addfile(entry)

    def extract(container: str) -> None:
        engine.call("PUT", f"/containers/{container}/archive", {"path": "/"}, archive.getvalue())

    if engine.is_podman:
        # it changes the folder below, from which the volume gets its rights when the first container starts
        all_of(in_parallel(extract, containers))
    else:
        extract(containers[0])


def is_denied(engine: Engine, user: User, folder: str) -> bool:
    """Returns True if a user of a container certainly cannot write into a mounted folder of this machine.

    Args:
        engine: the engine.
        user: the user.
        folder: the folder on this machine.
    """
    if sys.platform != "linux":
        return False  # its engine runs in a virtual machine
    try:
        status, lists = os.stat(folder), os.listxattr(folder)  # noqa: PTH116 - beside listxattr
    except OSError:
        return False
    needed = stat.S_IWOTH | stat.S_IXOTH
    if status.st_mode & needed == needed or _ACCESS_LISTS in lists or user.uid is None:
        return False
    info: Data = engine.call("GET", "/info")
    if "Docker Desktop" in str(info.get("OperatingSystem")):
        return False  # its files belong to the user of the desktop
    if any(option.startswith(_MAPPED) for option in info.get("SecurityOptions") or ()):
        return True  # the numbers of its users are of no other user here
    shares_group = status.st_mode & (needed << 3) == needed << 3
    # the groups of the user in the image are unknown
    return user.uid != status.st_uid and not shares_group
