"""Folders of any depth: a program may nest folders deeper than recursion, paths and open files allow."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from torchx.machine.files import FilePath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def statuses(path: FilePath) -> Iterator[os.stat_result]:
    """Yields the status of a file, or of a folder and all that is in it; skips what cannot be read."""
    todo = [os.fspath(path)]
    while todo:
        place = todo.pop()
        with suppress(OSError):
            status = os.lstat(place)
            yield status
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(place) as entries:
                    todo += [entry.path for entry in entries]


def remove(folder: FilePath) -> None:
    """Removes a folder with all that is in it, also read-only folders; follows no link.

    Folders are moved up before they are removed, so that any depth takes two descriptors and short paths.

    Raises:
        OSError: it does not exist, or a part of it cannot be removed.
    """
    _open_up(folder, None)
    top = os.open(folder, _FOLDER)
    prefix = f".removed-{os.urandom(8).hex()}"
    try:
        todo = _unlink(top)
        moved = 0
        while todo:
            name = todo.pop()
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                for below in _unlink(inner):
                    moved += 1
                    todo.append(f"{prefix}-{moved}")
                    os.rename(below, todo[-1], src_dir_fd=inner, dst_dir_fd=top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{os.fspath(folder)}/{error.filename or ''}") from error
    finally:
        os.close(top)
    os.rmdir(folder)  # noqa: PTH106


def discard(folder: FilePath) -> None:
    """Removes a folder like :func:`remove`, but ignores errors, after which a part of it is left."""
    with suppress(OSError):
        remove(folder)


def _unlink(folder: int) -> list[str]:
    """Removes the files in a folder; returns the names of the folders in it."""
    folders = []
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # removed by another process
            if _open_up(name, folder):
                folders.append(name)
            else:
                os.unlink(name, dir_fd=folder)
    return folders


def _open_up(name: FilePath, parent: int | None) -> bool:
    """Makes a folder writable for its owner; returns False for a file."""
    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        return False
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(OSError):
            os.chmod(name, stat.S_IRWXU, dir_fd=parent)
    return True
