"""Trust in configuration files: since they name programs to run, no other user may write them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torchx.config.ini import LARGEST, ConfigError
from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx.machine.files import read_file, write_file

with lazy_imports:
    import grp
    import hashlib
    import pwd

    from torchx.jobs import paths

TRUSTED = "trusted_configs"
"""The file of approvals in the state home: a hash and a path per line."""

_MOST_APPROVED = 1 << 20


def objection(file: Path) -> str:
    """Returns why another user may have written a file; empty if no other user can.

    A file and its folder must belong to the caller or root, and be writable neither by a group nor by the
    world. Exceptions: the caller's own group, which has their name and no other members, and a folder with
    the sticky bit such as /tmp.
    """
    try:
        link = file.lstat()
        if stat.S_ISLNK(link.st_mode):
            where = file.resolve(strict=True)
            return _folder(file.parent) or _of(where.stat(), "it") or _folder(where.parent)
        return _of(link, "it") or _folder(file.parent)
    except (OSError, RuntimeError) as error:
        return f"it cannot be examined ({getattr(error, 'strerror', None) or error})"


def _folder(folder: Path) -> str:
    return _of(folder.stat(), f"its folder {folder}")


def _of(status: os.stat_result, name: str) -> str:
    """Returns the objection to a file, which is called "it", or to its folder."""
    if name == "it" and not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{name} belongs to another user"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write {name}"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid):
        return f"a group may write {name}"
    return ""


def _is_own_group(gid: int) -> bool:
    """Returns True if a group is the caller's alone: it has their name and no other members."""
    if gid != os.getegid():
        return False
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(gid)
    except KeyError:  # without a name, the number may be shared
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def approved_content(file: Path) -> bytes | None:
    """Returns the content of a file if the user has approved it, else None."""
    try:
        known = _approved()
        if not known:
            return None
        data = read_file(file, LARGEST, own=False, follow=True)
    except OSError:
        return None
    if _line(file, data) in known:
        return data
    return None


def approve(file: Path) -> Path:
    """Records that a file may be used; a changed file must be approved again.

    Returns:
        The absolute path of the file.

    Raises:
        ConfigError: it cannot be read.
        StateError: the state home cannot be written.
    """
    place = Path(os.path.abspath(file))  # noqa: PTH100  # keeps links, since the search finds it by the same path
    try:
        data = read_file(place, LARGEST, own=False, follow=True)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from None
    line, home = _line(place, data), paths.state_home()
    try:
        kept = [each for each in _approved() if each.partition(" ")[2] != str(place)]
        text = "".join(f"{each}\n" for each in [*kept, line])
        write_file(home / TRUSTED, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise StateError(f"{home / TRUSTED} cannot be written: {error.strerror}") from error
    return place


def _line(file: Path, data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()} {str(file).replace(os.linesep, '?')}"


def _approved() -> list[str]:
    """Returns the lines of the file of approvals; it must belong to the user."""
    try:
        place = paths.user_home() / TRUSTED
        status, home = place.lstat(), place.parent.stat()
    except (OSError, StateError):
        return []
    own = status.st_uid == os.geteuid() == home.st_uid and not (status.st_mode | home.st_mode) & 0o022
    if not own or not stat.S_ISREG(status.st_mode):
        return []
    return read_file(place, _MOST_APPROVED).decode("utf-8", "surrogateescape").split("\n")[:-1]
