"""Copies a tree to a folder of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from torchx.errors import StateError
from torchx.machine.files import make_folder
from torchx.workspace.found import Entry

_UNSUPPORTED = {errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}


def write(
    entries: Iterable[tuple[Entry, str | None]],
    pieces: Callable[[Entry], Iterator[bytes]],
    folder: Path,
    *,
    into_existing: bool,
) -> None:
    """Copies files, folders and links below a folder.

    Args:
        entries: what, each with its place on this machine where it has one; folders before what is in them.
        pieces: gives the bytes of a file.
        folder: made when it is not there.
        into_existing: other files may lie there; these take the place of their namesakes.

    Raises:
        StateError: something cannot be read or written.
    """
    root = str(folder)
    narrow: list[tuple[str, int]] = []
    try:
        make_folder(folder)
        for entry, source in entries:
            place = f"{root}/{entry.path}"
            if into_existing:
                _make_way(place, entry)
            if entry.kind == "dir":
                _folder(place, entry.mode, narrow)
            elif entry.kind == "link":
                os.symlink(entry.target, place)  # noqa: PTH211
            else:
                _file(place, entry, source, pieces)
        for place, mode in reversed(narrow):  # a folder that nobody may write to is filled first
            os.chmod(place, mode)  # noqa: PTH101
    except OSError as error:
        where = error.filename2 or error.filename or root
        raise StateError(f"the workspace cannot be copied to {where}: {error.strerror}") from error


def _make_way(place: str, entry: Entry) -> None:
    """Removes what lies where an entry is to lie, unless both are folders."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(place) and not os.path.islink(place):  # noqa: PTH112, PTH114
            if entry.kind != "dir":
                shutil.rmtree(place)
        else:
            os.unlink(place)  # noqa: PTH108


def _folder(place: str, mode: int, narrow: list[tuple[str, int]]) -> None:
    try:
        os.mkdir(place, mode | 0o700)  # noqa: PTH102
    except FileExistsError:
        os.chmod(place, mode | 0o700)  # noqa: PTH101
    if mode & 0o700 != 0o700:
        narrow.append((place, mode))


def _file(place: str, entry: Entry, source: str | None, pieces: Callable[[Entry], Iterator[bytes]]) -> None:
    out = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if source is None or not _clone(source, out, entry.size, place):
            for piece in pieces(entry):
                rest = memoryview(piece)
                while rest:
                    rest = rest[_write(out, rest, place) :]
        os.fchmod(out, entry.mode & 0o777)
    finally:
        os.close(out)


def _write(out: int, data: memoryview, place: str) -> int:
    try:
        return os.write(out, data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, place) from error  # the descriptor has no name


SMALL = 1 << 16
"""A file of fewer bytes is read and written faster than the kernel is asked to copy it."""


def _clone(source: str, out: int, size: int, place: str) -> bool:
    """Has the kernel copy a file, without its bytes where the file system can; False when it cannot."""
    if size < SMALL or not hasattr(os, "copy_file_range"):
        return False
    try:
        # a link may stand in its place by now; of a project that is one file, it is read in another way
        file = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False  # whoever reads it tells why it cannot be
    left = size
    try:
        while left > 0 and (done := os.copy_file_range(file, out, left)):
            left -= done
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise OSError(error.errno, error.strerror, place) from error
    finally:
        os.close(file)
    if left:  # not here, or the file has become shorter: read from its start
        os.ftruncate(out, 0)
        os.lseek(out, 0, os.SEEK_SET)
    return left == 0
