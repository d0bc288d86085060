"""Write the members of an untrusted archive: never outside the target folder, and within limits.

The module does its own checks: the `filter` of Python's `tarfile` is missing in some versions, and lets links
point outside the folder in others. Each parent folder of a file is opened without following links, so an
earlier member cannot redirect a later one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import IO

from torchx.workspace.projects import SET_ID

MB = 1_000_000

MOST = 200_000
"""Maximum number of files, folders and links in an archive."""

LONGEST_TARGET = 4096
"""Maximum bytes of the target of a link."""

PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class BadArchiveError(Exception):
    """The archive has an invalid or forbidden member; the message does not name the archive."""


class TooLargeError(BadArchiveError):
    """The archive exceeds the size limit."""


def shown(name: str) -> str:
    """Returns the name of a member for an error message: shortened, without control characters.

    >>> shown("a\\x1b[2J")
    "'a\\\\x1b[2J'"
    """
    return ascii(name if len(name) <= 100 else f"{name[:100]}...")


class Target:
    """The new folder that an archive is unpacked to.

    Args:
        folder: the folder, which is empty.
        limit_mb: maximum size of all files together, in MB.

    Attributes:
        set_id: files that lose their set-user-id or set-group-id bit.
    """

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self.set_id: list[str] = []
        self._root = os.open(folder, _FOLDER)
        self._last: tuple[tuple[str, ...], int] = ((), self._root)
        self._left = limit_mb * MB
        self._members = 0
        self._modes: list[tuple[tuple[str, ...], int]] = []

    def close(self) -> None:
        """Closes the folder."""
        self._leave()
        os.close(self._root)

    def count(self, size: int) -> None:
        """Counts a member before it is read.

        Raises:
            TooLargeError: there are too many members, or the declared size exceeds the limit.
        """
        self._members += 1
        if self._members > MOST:
            raise TooLargeError(f"more than {MOST:,} files")
        if size < 0:
            raise BadArchiveError("a file with a negative size")
        if size > self._left:
            raise TooLargeError("too large")

    def folder(self, name: str, mode: int) -> None:
        """Creates a folder, or sets the permissions of an existing one."""
        parts = parts_of(name)
        self._enter(parts)
        self._modes.append((parts, self._folder_mode(mode)))

    def _folder_mode(self, mode: int) -> int:
        return mode & 0o755 | 0o700

    def file(self, name: str, mode: int, content: IO[bytes], mtime: float | None = None) -> None:
        """Writes a file; replaces an existing one."""
        if mode & SET_ID:
            self.set_id.append(name)
        parent, last = self._place(name)
        out = os.open(last, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            while piece := content.read(PIECE):
                self._left -= len(piece)
                if self._left < 0:
                    raise TooLargeError("too large")
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(out, rest) :]
            os.fchmod(out, mode & 0o755 | 0o600)
            if mtime is not None:
                with contextlib.suppress(OverflowError, OSError, ValueError):
                    os.utime(out, (mtime, mtime))
        finally:
            os.close(out)

    def link(self, name: str, target: str) -> None:
        """Creates a symbolic link that points inside the folder.

        A `..` is accepted only at the start: after the name of another link its meaning depends on that link.
        """
        steps = [step for step in target.split("/") if step not in ("", ".")]
        up = next((n for n, step in enumerate(steps) if step != ".."), len(steps))
        outside = target.startswith("/") or up > len(parts_of(name)) - 1 or ".." in steps[up:]
        if outside or not target or len(target) > LONGEST_TARGET:
            raise BadArchiveError(
                f"{shown(name)} is a link to {shown(target)}, which may point outside the folder"
            )
        parent, last = self._place(name)
        os.symlink(target, last, dir_fd=parent)

    def hard_link(self, name: str, target: str) -> None:
        """Creates a hard link to a file that was written earlier."""
        *above, first = parts_of(target) or ("",)
        source = -1
        try:
            source = os.dup(self._enter(tuple(above), make=False))
            if not stat.S_ISREG(os.stat(first, dir_fd=source, follow_symlinks=False).st_mode):
                raise BadArchiveError(f"{shown(name)} is a hard link to {shown(target)}, which is not a file")
            if parts_of(name) != parts_of(target):
                parent, last = self._place(name)
                os.link(first, last, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            raise BadArchiveError(
                f"{shown(name)} is a hard link to {shown(target)}, which is missing"
            ) from None
        finally:
            if source >= 0:
                os.close(source)

    def finish(self) -> None:
        """Sets the permissions of the folders."""
        for parts, mode in reversed(self._modes):  # a folder after those in it
            if parts:
                with contextlib.suppress(FileNotFoundError, BadArchiveError):  # replaced by something else
                    os.fchmod(self._enter(parts, make=False), mode)

    def _place(self, name: str) -> tuple[int, str]:
        """Removes an existing file of this name; returns the descriptor of its folder and its base name."""
        *above, last = parts_of(name) or ("",)
        if not last:
            raise BadArchiveError(f"{shown(name)} is not a valid file name")
        parent = self._enter(tuple(above))
        try:
            os.unlink(last, dir_fd=parent)
        except FileNotFoundError:
            pass
        except OSError:
            raise BadArchiveError(f"{shown(name)} is both a folder and a file") from None
        return parent, last

    def _enter(self, parts: tuple[str, ...], *, make: bool = True) -> int:
        """Opens a folder without following links; by default, creates missing ones on the way."""
        if parts == self._last[0]:
            return self._last[1]
        self._leave()
        at = os.dup(self._root)
        try:
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=at)
                below = os.open(part, _FOLDER, dir_fd=at)
                os.close(at)
                at = below
        except FileNotFoundError:
            os.close(at)
            raise
        except NotADirectoryError:  # also for a link: O_DIRECTORY is checked first
            os.close(at)
            raise BadArchiveError(f"{shown('/'.join(parts))} is below a link or a file") from None
        except BaseException:
            os.close(at)
            raise
        self._last = (parts, at)
        return at

    def _leave(self) -> None:
        if self._last[1] != self._root:
            os.close(self._last[1])
        self._last = ((), self._root)


def parts_of(name: str) -> tuple[str, ...]:
    """Returns the components of a path below the folder; a leading slash is ignored.

    Raises:
        BadArchiveError: the path is outside the folder, or is not a valid file name.
    """
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise BadArchiveError(f"{shown(name)} is outside the folder")
    try:
        if b"\0" in os.fsencode(name):
            raise BadArchiveError(f"{shown(name)} is not a valid file name")
    except UnicodeEncodeError:
        raise BadArchiveError(f"{shown(name)} is not a valid file name") from None
    return parts
