"""Safe file access: private regular files, opened without following links, and read up to a limit.

A path in the state home may have become a pipe that blocks its reader, a link to another place, or a file of
another user. All such files are opened by this module, which rejects these.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from torchx.errors import StateError, UsageError
from torchx.settings import TORCHX_HOME
from torchx.suggestions import near_path

FilePath = str | os.PathLike[str]
"""A path in any form."""

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
"""Opens a file to append to it, and creates it if it is missing."""

DEFAULT_HOME = ".torchx"
"""The name of the state home in the home folder of a user."""

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


def state_home_path() -> Path:
    """Returns the path of the state home: ``$TORCHX_HOME``, by default ``~/.torchx``.

    Raises:
        StateError: no home folder is known, or it is relative.
    """
    path, user = os.environ.get(TORCHX_HOME), os.environ.get("HOME", "/")
    if not (path or user.startswith("/")):
        raise StateError(f"HOME is `{user}`, which is not an absolute path", hint=OTHER_HOME)
    try:
        if path:
            return Path(path).expanduser().absolute()
        return Path.home() / DEFAULT_HOME
    except RuntimeError as error:  # no HOME, and a user without an entry in the password file
        raise StateError("no home folder is known for this user", hint=OTHER_HOME) from error


def expanded(path: FilePath) -> Path:
    """Returns a path with ``~`` replaced by the home folder.

    Raises:
        StateError: that is unknown: HOME is not set, and the user has no entry in the password file.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise StateError(
            f"the home folder in `{os.fspath(path)}` is unknown", hint="write the whole path"
        ) from error


def open_file(path: FilePath, flags: int = os.O_RDONLY, *, own: bool = True, follow: bool = False) -> int:
    """Opens a regular file; never blocks, and follows no link unless requested.

    A created file is private whatever the umask; with O_CREAT, so is an existing one of this user.

    Args:
        path: the file.
        flags: as for ``os.open``; O_CLOEXEC is always added.
        own: also require that it belongs to this user.
        follow: follow links, for files named by users.

    Returns:
        The descriptor.

    Raises:
        OSError: it is not a regular file, belongs to another user, or cannot be opened.
    """
    # without O_NONBLOCK, opening a pipe blocks until another process opens it too
    more = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    if follow and not stat.S_ISREG((status := os.stat(path)).st_mode):  # noqa: PTH116
        raise _not_regular(status, path)  # opening a device may have side effects
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
            with contextlib.suppress(OSError):  # another user's, or a read-only disk
                os.fchmod(descriptor, PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_file(path: FilePath, limit: int, *, own: bool = True, follow: bool = False) -> bytes:
    """Returns the content of a regular file.

    Args:
        path: the file.
        limit: its maximum size in bytes.
        own: also require that it belongs to this user.
        follow: follow links.

    Raises:
        OSError: it is larger, or :func:`open_file` fails.
    """
    descriptor = open_file(path, own=own, follow=follow)
    pieces, left = [], limit + 1
    try:  # a file object costs more than the read of a small file
        while left and (piece := os.read(descriptor, min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    if not left:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", os.fspath(path))
    return b"".join(pieces)


_PIECE = 1 << 16
"""Maximum bytes of one read."""


def read_end(path: FilePath, limit: int) -> bytes:
    """Returns the last bytes of a regular file of this user.

    Raises:
        OSError: :func:`open_file` fails.
    """
    with os.fdopen(open_file(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
        return file.read(limit)


def write_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Writes a private file atomically; replaces an existing one.

    Args:
        path: the file.
        data: its content.
        sync: wait until the content is on the disk, and visible to other machines.

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


def append_lines(path: FilePath, lines: Iterable[bytes]) -> None:
    """Appends lines to a file, all or none, after a line that an interrupted process left incomplete.

    The caller is the only process that writes the file: it holds a lock.

    Raises:
        OSError: it cannot be written; then no line is left.
    """
    data = b"".join(lines)
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with open(descriptor, "ab+", buffering=0) as file:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            os.ftruncate(descriptor, size)
            raise


def make_folder(folder: Path, *, exist_ok: bool = True) -> None:
    """Creates a folder and its missing parents, private whatever the umask.

    Existing folders are unchanged.

    Args:
        folder: the folder.
        exist_ok: accept an existing folder.

    Raises:
        OSError: it cannot be created.
    """
    try:
        if folder.name == DEFAULT_HOME and not os.environ.get(TORCHX_HOME):
            _check_owner(folder)
        try:
            folder.mkdir(mode=PRIVATE_FOLDER)
        except FileNotFoundError:
            make_folder(folder.parent)
            folder.mkdir(mode=PRIVATE_FOLDER)  # fails again where no folder can be made, as in /proc
    except FileExistsError:
        if not exist_ok or not folder.is_dir():
            raise
    else:
        if folder.stat().st_mode & 0o777 != PRIVATE_FOLDER:  # a umask that restricts the owner
            folder.chmod(PRIVATE_FOLDER)


def _check_owner(home: Path) -> None:
    """Checks that root creates no state home in the home folder of another user, as with ``sudo -E``.

    Raises:
        OSError: it would: the user could not use it.
    """
    if os.geteuid() == 0 and not os.path.lexists(home) and (owner := home.parent.stat().st_uid) != 0:
        why = f"root would create it in the home folder of user {owner} (sudo -H uses the home of root)"
        raise PermissionError(errno.EPERM, why, os.fspath(home))


def names_in(folder: FilePath) -> list[str]:
    """Returns the names in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def move_folder(part: Path, folder: Path) -> None:
    """Renames a folder that is complete; keeps an existing one, as another process was faster.

    Raises:
        OSError: it cannot be renamed.
    """
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def is_own_folder(path: Path) -> bool:
    """Returns True if the path is a folder of this user, not a link."""
    try:
        status = path.lstat()
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def check_home(home: Path) -> None:
    """Checks that the state home is private to this user; restricts its permissions if they are too open.

    Args:
        home: its folder, which need not exist.

    Raises:
        StateError: it belongs to another user, is not a folder, or stays writable for others.
    """
    try:
        status = home.stat()
    except (FileNotFoundError, NotADirectoryError):
        return  # it does not exist yet
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


def _not_regular(status: os.stat_result, path: FilePath) -> OSError:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    return OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))


def state_home() -> Path:
    """Returns the state home, a folder private to this user; creates it if missing.

    Raises:
        StateError: it cannot be created, is not a folder, or belongs to another user.
    """
    home = user_home()
    try:
        make_folder(home)
    except OSError as error:
        raise StateError(
            f"the state home {home} cannot be used: {error.strerror}", hint=OTHER_HOME
        ) from error
    check_home(home)
    return home


def unreadable(subject: str, path: str, error: OSError) -> UsageError:
    """Returns the error for a file named on the command line.

    Args:
        subject: the file, with its flag.
        path: its path.
        error: the reason.
    """
    hint = None
    if isinstance(error, FileNotFoundError):
        hint = near_path(str(expanded(path)), name=path)
    return UsageError(f"{subject} cannot be read: {error.strerror}", hint=hint, code="invalid_value")


def user_home() -> Path:
    """Returns the state home, which need not exist.

    Raises:
        StateError: its path is unknown, it belongs to another user, or others may write to it.
    """
    home = state_home_path()
    check_home(home)
    return home


def check_user_home() -> None:
    """Checks the state home for a command that can run without one.

    Raises:
        StateError: it belongs to another user, or others may write to it.
    """
    try:
        home = state_home_path()
    except StateError:
        return
    check_home(home)
