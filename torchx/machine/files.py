"""Files of torchx's own folders: private, regular, opened without following links, and read up to a limit.

A name in the state home may have become anything: a pipe that would block its reader, a link that leads
elsewhere, a file of another user. Every such file is opened here, so that none of these is believed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.settings import TORCHX_HOME

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
OTHER_HOME = f"set {TORCHX_HOME} to a folder of your own"

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFREG: "a file",
}


def open_file(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, *, own: bool = True, follow: bool = False
) -> int:
    """Opens a regular file; never waits for another process, and follows no link unless requested.

    A file that is created is private whatever the umask, and so is one of this user that was not.

    Args:
        path: the file.
        flags: as for ``os.open``; the file is closed when this process starts another program.
        own: also require that it belongs to this user.
        follow: follow a link in its place, for files that users name.

    Returns:
        The descriptor.

    Raises:
        OSError: it is something else than a regular file, belongs to another user, or cannot be opened.
    """
    # without O_NONBLOCK a pipe would block here until another process opens it, too
    more = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    if follow and not stat.S_ISREG((found := os.stat(path)).st_mode):  # noqa: PTH116
        raise _not_regular(found, path)  # opening a device may have an effect
    try:
        descriptor = os.open(path, flags | more, PRIVATE_FILE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _not_regular(os.lstat(path), path) from error
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(status, path)
        if own and status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", os.fspath(path))
        if flags & os.O_CREAT and status.st_mode & 0o777 != PRIVATE_FILE:
            with contextlib.suppress(OSError):  # not ours, or a disk that cannot be written
                os.fchmod(descriptor, PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: str | os.PathLike[str], limit: int, *, own: bool = True, follow: bool = False) -> bytes:
    """Returns the content of a regular file.

    Args:
        path: the file.
        limit: the most bytes that it may have.
        own: also require that it belongs to this user.
        follow: follow a link in its place.

    Raises:
        OSError: it is larger, or :func:`open_file` refuses it.
    """
    with open(open_file(path, own=own, follow=follow), "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", os.fspath(path))
    return data


def write_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Writes a private file, whole or not at all; an existing file is replaced.

    Args:
        path: the file.
        data: its content.
        sync: wait until the content is on the disk, also where other machines read it.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.{os.urandom(6).hex()}.partial")
    with open(open_file(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        try:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def make_folder(folder: Path, *, exist_ok: bool = True) -> None:
    """Makes a folder, and those above it that are missing, private whatever the umask.

    Those that exist stay unchanged.

    Args:
        folder: the folder.
        exist_ok: accept a folder that exists.

    Raises:
        OSError: it cannot be made.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    try:
        folder.mkdir(mode=PRIVATE_FOLDER)
    except FileExistsError:
        if not exist_ok or not folder.is_dir():
            raise
    else:
        if folder.stat().st_mode & 0o777 != PRIVATE_FOLDER:  # a umask that takes rights from its owner
            folder.chmod(PRIVATE_FOLDER)


def is_own_folder(path: Path) -> bool:
    """Returns True for a folder of this user that is no link."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def check_home(home: Path) -> None:
    """Checks that the state home is this user's alone, and makes it so where it is only too open.

    Args:
        home: its folder, which need not exist.

    Raises:
        StateError: it belongs to another user, is no folder, or others may write to it.
    """
    try:
        status = home.stat()
    except (FileNotFoundError, NotADirectoryError):
        return  # nothing is kept there; to make it is another matter
    except OSError as error:
        raise StateError(
            f"the state home {home} cannot be used: {error.strerror}", hint=OTHER_HOME
        ) from error
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(f"the state home {home} cannot be used: it is not a folder", hint=OTHER_HOME)
    if status.st_uid != os.geteuid():
        raise StateError(f"the state home {home} belongs to another user", hint=OTHER_HOME)
    if status.st_mode & 0o077:
        try:
            home.chmod(PRIVATE_FOLDER)
        except OSError as error:
            if status.st_mode & 0o022:
                raise StateError(
                    f"the state home {home} may be written by other users: {error.strerror}", hint=OTHER_HOME
                ) from error


def _not_regular(status: os.stat_result, path: str | os.PathLike[str]) -> OSError:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    return OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
