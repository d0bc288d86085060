"""Reads the files of a working tree, without following links."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from torchx.machine import files
from torchx.provenance.model import EXECUTABLE, LINK, PLAIN
from torchx.provenance.store import LARGEST_FILE


class Found(NamedTuple):
    """A file of the working tree.

    Attributes:
        mode: its mode, as git has it.
        size: its bytes.
        content: its content; None if it is too large.
        name: the name that git would give to its object.
        digest: the SHA-256 of its content.
        changed_at: the time of its last change.
    """

    mode: int
    size: int
    content: bytes | None
    name: str
    digest: str
    changed_at: float


class TreeFiles:
    """The files of a working tree.

    Args:
        top: its root.
        sha256: the names of objects are SHA-256.
    """

    def __init__(self, top: str, *, sha256: bool) -> None:
        self._top, self._sha256 = top, sha256
        self._folders: dict[str, bool] = {"": True}

    def read(self, path: str, *, whole: bool = True) -> Found | None:
        """Returns a file of the working tree, None without one.

        Args:
            path: the file.
            whole: read it even if it is too large to be kept.

        Raises:
            OSError: it cannot be read.
        """
        if not self._is_folder(path.rpartition("/")[0]):
            return None
        full = f"{self._top}/{path}"
        try:
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                target = os.fsencode(os.readlink(full))  # noqa: PTH115  # paths of any bytes
                return self._found(LINK, [target], len(target), status)
            if not stat.S_ISREG(status.st_mode):
                return None
            if status.st_mode & 0o100:
                mode = EXECUTABLE
            else:
                mode = PLAIN
            with open(files.open_file(full, own=False), "rb") as opened:
                if status.st_size <= LARGEST_FILE:
                    content = opened.read(LARGEST_FILE + 1)
                    if len(content) <= LARGEST_FILE:
                        return self._found(mode, [content], len(content), status)
                    opened.seek(0)
                size = os.fstat(opened.fileno()).st_size
                pieces = iter(lambda: opened.read(1 << 20) if whole else b"", b"")
                return self._found(mode, pieces, size, status)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):  # removed or replaced meanwhile
                return None
            raise

    def _found(self, mode: int, pieces: Iterable[bytes], size: int, status: os.stat_result) -> Found:
        digest, name = hashlib.sha256(), self._begin_name(size)
        for piece in pieces:
            digest.update(piece)
            name.update(piece)
        content = None
        if isinstance(pieces, list):
            content = pieces[0]
        changed_at = max(status.st_mtime, status.st_ctime)
        return Found(mode, size, content, name.hexdigest(), digest.hexdigest(), changed_at)

    def _begin_name(self, size: int) -> hashlib._Hash:
        if self._sha256:
            name = hashlib.sha256()
        else:
            name = hashlib.sha1(usedforsecurity=False)
        name.update(b"blob %d\0" % size)
        return name

    def name(self, content: bytes) -> str:
        """Returns the name of an object."""
        name = self._begin_name(len(content))
        name.update(content)
        return name.hexdigest()

    def _is_folder(self, path: str) -> bool:
        """Returns True if a path in the tree is a folder, and no part of it is a link."""
        if path not in self._folders:
            try:
                is_dir = stat.S_ISDIR(os.lstat(f"{self._top}/{path}").st_mode)
            except OSError:
                is_dir = False
            self._folders[path] = is_dir and self._is_folder(path.rpartition("/")[0])
        return self._folders[path]
