"""Copies a tree to a local folder."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import trees
from torchx.machine.files import make_folder
from torchx.workspace.projects import Entry, VanishedError

_UNSUPPORTED = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}


def write(
    entries: Iterable[tuple[Entry, str | None]],
    pieces: Callable[[Entry], Iterator[bytes]],
    folder: Path,
    *,
    into_existing: bool,
) -> None:
    """Copies files, folders and links into a folder.

    Args:
        entries: the entries, each with its local path or None; folders before their content.
        pieces: returns the content of a file.
        folder: the target; created if missing.
        into_existing: the folder may contain files; the copies replace those of the same name.

    Raises:
        StateError: a file cannot be read or written.
    """
    root = str(folder)
    restricted: list[tuple[str, int]] = []
    try:
        make_folder(folder)
        for entry, source in entries:
            path = f"{root}/{entry.path}"
            if into_existing:
                _remove_existing(path, entry)
            if entry.kind == "dir":
                _folder(path, entry.mode, restricted)
            elif entry.kind == "link":
                os.symlink(entry.target, path)  # noqa: PTH211
            else:
                with contextlib.suppress(VanishedError):
                    _file(path, entry, source, pieces)
        for path, mode in reversed(restricted):  # read-only folders are filled first
            os.chmod(path, mode)  # noqa: PTH101
    except OSError as error:
        where = error.filename2 or error.filename or root
        raise StateError(f"the workspace cannot be copied to {where}: {error.strerror}") from error


def _remove_existing(path: str, entry: Entry) -> None:
    """Removes the file or folder at an entry's path, unless both are folders."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            if entry.kind != "dir":
                trees.remove(path)
        else:
            os.unlink(path)  # noqa: PTH108


def _folder(path: str, mode: int, restricted: list[tuple[str, int]]) -> None:
    try:
        os.mkdir(path, mode | 0o700)  # noqa: PTH102
    except FileExistsError:
        os.chmod(path, mode | 0o700)  # noqa: PTH101
    if mode & 0o700 != 0o700:
        restricted.append((path, mode))


def _file(path: str, entry: Entry, source: str | None, pieces: Callable[[Entry], Iterator[bytes]]) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if source is None or not _clone(source, out, entry.size, path):
            for piece in pieces(entry):
                rest = memoryview(piece)
                while rest:
                    rest = rest[_write(out, rest, path) :]
    except VanishedError:
        os.unlink(path)  # noqa: PTH108
        raise
    else:
        os.fchmod(out, entry.mode & 0o777)
    finally:
        os.close(out)


def _write(out: int, data: memoryview, path: str) -> int:
    try:
        return os.write(out, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # add the path for the message


SMALL = 1 << 16
"""Bytes below which reading and writing is faster than a copy by the kernel."""


def _clone(source: str, out: int, size: int, path: str) -> bool:
    """Lets the kernel copy a file, by reference if the file system can; returns False on failure."""
    if size < SMALL or not hasattr(os, "copy_file_range"):
        return False
    try:
        # it may have been replaced by a link; a project of one file may be one, which `pieces` follows
        file = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False  # `pieces` raises the error
    left = size
    try:
        while left > 0 and (done := os.copy_file_range(file, out, left)):
            left -= done
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(file)
    if left:  # not supported, or the file has become shorter: start again
        os.ftruncate(out, 0)
        os.lseek(out, 0, os.SEEK_SET)
    return left == 0
