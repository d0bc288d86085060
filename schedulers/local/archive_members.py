"""Read the members of untrusted archives within limits, and write them with `torchx.workspace.unpacking`."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.lazy import lazy_imports
from torchx.workspace.unpacking import (
    LONGEST_TARGET,
    MB,
    MOST,
    PIECE,
    BadArchiveError,
    Target,
    TooLargeError,
    shown,
)

with lazy_imports:
    import bz2
    import gzip
    import lzma

if TYPE_CHECKING:
    import tarfile
    import zipfile

LARGEST_HEADER = 1 << 20
"""Maximum bytes of an extended tar header, which is read in one piece and usually holds a name."""


def unpack_zip(archive: zipfile.ZipFile, target: Target) -> None:
    """Writes the members of a zip archive."""
    for member in archive.infolist():
        mode = member.external_attr >> 16
        target.count(member.file_size)
        kind = stat.S_IFMT(mode)
        if member.is_dir():
            target.folder(member.filename, stat.S_IMODE(mode) or 0o755)
        elif kind == stat.S_IFLNK:
            with archive.open(member) as content:
                target.link(member.filename, os.fsdecode(content.read(LONGEST_TARGET + 1)))
        elif kind in (0, stat.S_IFREG):
            with archive.open(member) as content:
                target.file(member.filename, stat.S_IMODE(mode) or 0o644, content)
        else:
            raise BadArchiveError(f"{shown(member.filename)} is neither a file, a folder nor a link")


def unpack_tar(archive: tarfile.TarFile, target: Target) -> None:
    """Writes the members of a tar archive."""
    kept: list[Any] = vars(archive)["members"]
    for member in archive:
        kept.clear()  # no member is looked up by name
        target.count(member.size)
        if member.isdir():
            target.folder(member.name, member.mode)
        elif member.issym():
            target.link(member.name, member.linkname)
        elif member.islnk():
            target.hard_link(member.name, member.linkname)
        elif member.isreg():
            content: Any = archive.extractfile(member)
            target.file(member.name, member.mode, content, member.mtime)
        else:
            raise BadArchiveError(f"{shown(member.name)} is neither a file, a folder nor a link")


class TarStream:
    """The decompressed stream of a tar archive; limits the reads of `tarfile`.

    Args:
        file: the decompressed stream, seekable.
        limit_mb: maximum size of the members, in MB.
    """

    def __init__(self, file: Any, limit_mb: int) -> None:
        self._file = file
        self._end = limit_mb * MB + MOST * 1024

    def read(self, size: int = -1) -> bytes:
        """Reads up to `size` bytes."""
        if not 0 <= size <= max(LARGEST_HEADER, PIECE):
            raise BadArchiveError("a header that is too large")
        data: bytes = self._file.read(size)
        return data

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Seeks to an offset; in a compressed archive, everything before it is decompressed."""
        if place > self._end:
            raise TooLargeError("too large")
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        """Returns the current offset."""
        return int(self._file.tell())

    def finish(self) -> None:
        """Reads to the end, which verifies the checksum of a compressed archive."""
        while self._file.read(PIECE):
            if self._file.tell() > self._end:
                raise TooLargeError("too large")


@contextlib.contextmanager
def decompressed(path: Path) -> Iterator[Any]:
    """Opens a tar archive: plain, or compressed with gzip, bzip2 or xz."""
    with path.open("rb") as file:
        start = file.read(6)
        file.seek(0)
        if start.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=file) as opened:
                yield opened
        elif start.startswith(b"BZh"):
            with bz2.BZ2File(file) as unzipped:
                yield unzipped
        elif start == b"\xfd7zXZ\0":
            with lzma.LZMAFile(file) as expanded:
                yield expanded
        else:
            yield file
