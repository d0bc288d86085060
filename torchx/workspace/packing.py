"""Packs a tree as a reproducible tar archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from torchx.lazy import lazy_imports
from torchx.workspace.projects import Entry, VanishedError

with lazy_imports:
    import tarfile

MADE = 315_619_200
"""Modification time of all files, 1980-01-02: in any time zone, not before 1980, which zip files require."""


class Writable(Protocol):
    """A binary file object for writing."""

    def write(self, data: bytes, /) -> object:
        """Writes data."""


class _Reader:
    """A file object that reads from an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = b""

    def read(self, size: int) -> bytes:
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._held += piece
        if len(self._held) >= size:
            data, self._held = self._held[:size], self._held[size:]
            if not self._held:
                self._held = next(self._pieces, b"")  # runs the check after the last piece
            return data
        data, self._held = self._held, b""
        return data


def pack(
    entries: Iterable[Entry], pieces: Callable[[Entry], Iterator[bytes]], fileobj: Writable, below: str
) -> None:
    """Writes a tar archive with a fixed time, owned by root.

    Args:
        entries: the entries, in order.
        pieces: returns the content of a file.
        fileobj: the file object to write to.
        below: a folder of the archive to put the entries in.
    """
    kinds = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "file": tarfile.REGTYPE}
    # this format keeps names of any bytes unchanged
    form = {"format": tarfile.GNU_FORMAT, "encoding": "utf-8", "errors": "surrogateescape"}
    with tarfile.open(fileobj=fileobj, mode="w|", **form) as tar:  # type: ignore[call-overload]
        for entry in entries:
            if entry.kind == "file":
                content = pieces(entry)
            else:
                content = iter(())
            try:
                first = next(content, b"")
            except VanishedError:
                continue
            info = tarfile.TarInfo(f"{below}/{entry.path}" if below else entry.path)
            info.type, info.mode, info.linkname = kinds[entry.kind], entry.mode, entry.target
            info.size, info.mtime = entry.size, MADE
            tar.addfile(info, _Reader(chain([first], content)) if entry.kind == "file" else None)
