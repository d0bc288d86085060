"""Packs a tree as a tar archive: equal trees give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from torchx.workspace.found import Entry

MADE = 315_619_200
"""The time of all files of an archive, 1980-01-02: zip files hold none from before 1980, in any zone."""


class Writes(Protocol):
    """What bytes can be written to."""

    def write(self, data: bytes, /) -> object:
        """Takes some bytes."""
        ...


class _Reader:
    """Pieces of bytes as a file that is read from its start to its end."""

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
            found, self._held = self._held[:size], self._held[size:]
            if not self._held:
                self._held = next(self._pieces, b"")  # the last piece is followed by the check
            return found
        found, self._held = self._held, b""
        return found


def pack(
    entries: Iterable[Entry], pieces: Callable[[Entry], Iterator[bytes]], fileobj: Writes, below: str
) -> None:
    """Writes a tar archive: all of one time and root's.

    Args:
        entries: what goes in, in order.
        pieces: gives the bytes of a file.
        fileobj: what takes the bytes.
        below: a folder of the archive to put all of it in.
    """
    import tarfile

    kinds = {"dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "file": tarfile.REGTYPE}
    # this format holds names of any bytes as they are
    form = {"format": tarfile.GNU_FORMAT, "encoding": "utf-8", "errors": "surrogateescape"}
    with tarfile.open(fileobj=fileobj, mode="w|", **form) as tar:  # type: ignore[call-overload]
        for entry in entries:
            info = tarfile.TarInfo(f"{below}/{entry.path}" if below else entry.path)
            info.type, info.mode, info.linkname = kinds[entry.kind], entry.mode, entry.target
            info.size, info.mtime = entry.size, MADE
            tar.addfile(info, _Reader(pieces(entry)) if entry.kind == "file" else None)
