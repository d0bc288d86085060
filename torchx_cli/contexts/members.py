"""Files and folders as a stream of members, in the form of a tar archive; written within a target only.

The name of a member is relative to the file or folder that is copied, which has an empty name itself.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import io
import itertools
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from torchx import json_shape
from torchx.errors import StateError, UsageError
from torchx.json_limits import load_json
from torchx.printable import one_line
from torchx.workspace.unpacking import PIECE, BadArchiveError, Target, parts_of

OFFSET = "TORCHX.offset"
"""The header of a file whose first bytes are left out, as the receiver has them."""
PART = ".torchx-part-"
"""Prefix of the name of a file that is not complete, or in a folder that is not."""
KEPT_FROM = 1 << 20
"""Bytes of a file from which its part is kept after an interruption."""
BLOCK = 1 << 18
"""Bytes of a read; larger blocks need new memory for each read, which is slower."""
LARGEST_HEADER = 1 << 20
"""Maximum bytes of an extended header of an archive, which is read in one piece."""

Have = Mapping[str, int]
"""Key of a file -> the number of its first bytes that the receiver has."""


class Reads(Protocol):
    """A stream of bytes; one with `readinto`, such as a file that is not buffered, is read without copies."""

    def read(self, size: int, /) -> bytes | memoryview:
        """Returns up to so many bytes, which are valid until the next call; none at the end."""


class Writes(Protocol):
    """A receiver of bytes, not buffered."""

    def write(self, data: memoryview, /) -> int | None:
        """Writes bytes, and returns the number of those that it took."""


class Member(NamedTuple):
    """A file, a folder or a link.

    Attributes:
        info: its name, kind, mode and time of change.
        content: the content of a file, without the first ``offset`` bytes.
        offset: the number of bytes that are left out.
    """

    info: tarfile.TarInfo
    content: Reads | None = None
    offset: int = 0

    @property
    def size(self) -> int:
        """The size of the whole file."""
        return self.info.size + self.offset

    @property
    def key(self) -> str:
        """Names this version of the file."""
        return key_of(self.info.name, self.size, self.info.mtime)


def key_of(name: str, size: int, changed_at: float) -> str:
    """Returns the key of a file with this size and time of change, in seconds since the epoch."""
    text = f"{name}\0{size}\0{changed_at:.4f}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]


class InvalidArchiveError(StateError):
    """An archive is damaged, ends too early, or has a forbidden member."""

    def __init__(self, problem: object) -> None:
        super().__init__(f"the files cannot be copied: {problem}", code="invalid_archive")


class Log:
    """Counts the files that are copied, and collects notes.

    Args:
        moved: called with the number of bytes that were copied, or that the receiver has.
    """

    def __init__(self, moved: Callable[[int], None] = lambda _: None) -> None:
        self.moved = moved
        self.files = 0
        self.notes: list[str] = []

    def skip(self, name: str, why: str) -> None:
        """Notes that something is not copied."""
        self.notes.append(f"{one_line(name)} is not copied: {why}")


# --- read ------------------------------------------------------------------------------------------


def walk(path: Path, log: Log) -> Iterator[Member]:
    """Yields a file or folder of this machine, with all below it.

    A link at the top is followed, links below it are not.

    Raises:
        UsageError: it does not exist.
        StateError: it cannot be read.
    """
    try:
        yield from _walk(os.path.realpath(path), "", log)
    except FileNotFoundError:
        raise UsageError(f"no such file or folder: {one_line(path)}", code="not_found") from None
    except OSError as error:
        place = one_line(error.filename or path)
        raise StateError(f"{place} cannot be read: {error.strerror}") from error


def _walk(path: str, name: str, log: Log) -> Iterator[Member]:
    status = os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
    if stat.S_ISREG(status.st_mode):
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb", buffering=0) as content:
            info.size = os.fstat(content.fileno()).st_size
            yield Member(info, content)
    elif stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(Path(path).readlink())
        yield Member(info)
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
        yield Member(info)
        for below in sorted(Path(path).iterdir()):
            if not below.name.startswith(PART):
                yield from _walk(str(below), f"{name}/{below.name}".lstrip("/"), log)
    else:
        log.skip(name or path, "it is neither a file, a folder nor a link")


class Archive:
    """Reads a tar archive from a stream; its members become relative to the first one.

    Args:
        source: the archive.

    Raises:
        InvalidArchiveError: the archive is invalid or ends too early; raised by the iteration.
    """

    def __init__(self, source: Reads) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(BLOCK))
        self._position = 0
        self._last = b""  # tarfile reads it again, to check that a member is whole
        self._top: str | None = None

    def __iter__(self) -> Iterator[Member]:
        try:
            archive = tarfile.TarFile(fileobj=self, mode="r")  # type: ignore[arg-type]
            kept: list[Any] = vars(archive)["members"]
            for info in archive:
                kept.clear()  # no member is looked up by name
                yield self._member(info)
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise InvalidArchiveError(str(error)) from error
        while self._source.read(PIECE):  # the sender must not fail at the end
            pass

    def _member(self, info: tarfile.TarInfo) -> Member:
        text = info.pax_headers.get(OFFSET, "0")
        name = info.name.removeprefix("./").strip("/")
        if name == ".":
            name = ""
        if self._top is None:
            self._top = name
        info.name = self._below_top(name)
        if info.islnk():
            info.linkname = self._below_top(info.linkname.removeprefix("./").strip("/"))
        if not info.isreg():
            return Member(info)
        if info.issparse() or info.size < 0 or not text.isdecimal():
            raise InvalidArchiveError(f"{one_line(info.name)} has an unknown form")
        return Member(info, _Content(self, info.size), int(text[:18]))

    def _below_top(self, name: str) -> str:
        if name == self._top:
            return ""
        if self._top and not name.startswith(f"{self._top}/"):
            raise InvalidArchiveError(f"{one_line(name)} is outside of {one_line(self._top)}")
        return name.removeprefix(f"{self._top}/")

    def read(self, size: int) -> bytes:
        """Reads a header."""
        if self._last and size == 1:  # see seek
            data, self._last = self._last, b""
            return data
        if size > LARGEST_HEADER:
            raise InvalidArchiveError("a header is too large")
        data = b""
        while len(data) < size:
            data += self.take(size - len(data))
        return data

    def take(self, size: int) -> bytes | memoryview:
        """Reads at least one byte; the result is valid until the next call."""
        readinto = getattr(self._source, "readinto", None)
        if readinto is None:
            data = self._source.read(min(size, BLOCK))
        else:
            data = self._buffer[: readinto(self._buffer[:size])]
        if not data:
            raise InvalidArchiveError("it ends too early")
        self._position += len(data)
        return data

    def seek(self, place: int, whence: int = os.SEEK_SET) -> None:
        """Reads up to an offset."""
        if place == self._position - 1:
            self._last = b"\0"
            return
        while self._position < place:
            self.take(place - self._position)

    def tell(self) -> int:
        """Returns the current offset."""
        return self._position


class _Content:
    """The content of one file of an archive."""

    def __init__(self, archive: Archive, size: int) -> None:
        self._archive, self._left = archive, size

    def read(self, size: int) -> bytes | memoryview:
        if not self._left:
            return b""
        data = self._archive.take(min(size, self._left))
        self._left -= len(data)
        return data


# --- write -----------------------------------------------------------------------------------------


def write(
    members: Iterable[Member], out: Writes, log: Log, *, have: Have | None = None, top: str = "."
) -> None:
    """Writes members as a tar archive.

    Args:
        members: the members.
        out: the archive.
        log: counts them.
        have: the files that the receiver has, or their first bytes.
        top: the name of the top in the archive.

    Raises:
        StateError: a file becomes shorter while it is read.
    """
    for member in members:
        info = copy.copy(member.info)
        info.name = f"{top}/{info.name}".rstrip("/")
        if info.islnk():
            info.linkname = f"{top}/{info.linkname}"
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        offset = (have or {}).get(member.key, 0)
        info.pax_headers = {}
        if 0 < offset <= member.size and member.content is not None:
            info.pax_headers[OFFSET] = str(offset)
            info.size -= offset
            _skip(member.content, offset)
            log.moved(offset)
        _write_all(out, info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
        if member.content is not None:
            _send(member, out, info.size, log)
            _write_all(out, bytes(-info.size % tarfile.BLOCKSIZE))
        log.files += info.isreg()
    _write_all(out, bytes(2 * tarfile.BLOCKSIZE))


def _send(member: Member, out: Writes, left: int, log: Log) -> None:
    while left:
        sent = _sendfile(out, member.content, min(left, PIECE))
        if not sent:
            raise StateError(f"{one_line(member.info.name)} became shorter while it was read")
        left -= sent
        log.moved(sent)


def _sendfile(out: Writes, source: Any, most: int) -> int:
    """Copies bytes, from a file within the kernel where that is possible; returns their number."""
    if hasattr(source, "fileno") and isinstance(out, io.FileIO):
        try:
            return os.sendfile(out.fileno(), source.fileno(), None, most)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                raise
    data: bytes | memoryview = source.read(most)
    _write_all(out, data)
    return len(data)


def _write_all(out: Writes, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[out.write(rest) or len(rest) :]


def _skip(source: Reads, count: int) -> None:
    """Reads bytes that the receiver has."""
    if isinstance(source, _Content) or not hasattr(source, "seek"):
        while count:
            data = source.read(min(count, PIECE))
            if not data:
                raise InvalidArchiveError("it ends too early")
            count -= len(data)
    else:
        source.seek(count, os.SEEK_CUR)


def target_of(dest: Path, name: str) -> Path:
    """Returns the path that is written for a source with a name: in a folder that exists, one of this name.

    A folder in which an interrupted copy was begun is that copy. An empty name means the content of a folder.
    """
    if name not in ("", ".") and dest.is_dir() and not (dest / PART).exists():
        return dest / name
    return dest


def have(target: Path) -> dict[str, int]:
    """Returns the files that a copy to a target does not need any more, or only the rest of."""
    found: dict[str, int] = {}
    with suppress(OSError):
        if not target.is_dir():
            for path in target.parent.glob(f"{_part_of(target.name)}*"):
                found[path.name.removeprefix(_part_of(target.name))] = path.lstat().st_size
            status = target.lstat()
            found[key_of("", status.st_size, status.st_mtime)] = status.st_size
    for folder, _, names in os.walk(target):
        for path in (Path(folder, name) for name in names):
            with suppress(OSError):
                status = path.lstat()
                key = key_of(str(path.relative_to(target)), status.st_size, status.st_mtime)
                if path.name.startswith(PART):
                    key = path.name[len(_part_of("")) :]
                found[key] = status.st_size
    return found


def read_have(data: bytes) -> dict[str, int]:
    """Reads the answer of another machine about the files that it has.

    Raises:
        StateError: it is invalid.
    """
    try:
        known: dict[str, int] = load_json(data.decode())
        json_shape.check(known, {json_shape.ANY_KEY: int}, "")
    except ValueError as error:
        raise StateError(f"the other machine gave an invalid answer: {error}") from error
    return known


def _part_of(name: str) -> str:
    """Returns the prefix of the names of parts of a file."""
    return f"{PART}{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}-"


class Receiver(Target):
    """Writes members to a folder, never outside of it.

    Args:
        folder: the folder.
        log: counts them.
    """

    def __init__(self, folder: Path, log: Log) -> None:
        super().__init__(folder, 0)
        self._log = log

    def _folder_mode(self, mode: int) -> int:
        return mode & 0o777

    def write(self, member: Member, name: str) -> None:
        """Writes a member under a name.

        Raises:
            BadArchiveError: the member would be outside of the folder.
            OSError: it cannot be written.
        """
        info = member.info
        if f"/{PART}" in f"/{name}":
            raise BadArchiveError(f"{one_line(name)} has a reserved name")
        if member.content is not None:
            self._write_file(member, name)
            self._log.files += 1
        elif info.isdir():
            self.folder(name, info.mode)
        elif info.islnk():
            self.hard_link(name, info.linkname)
        elif not info.issym():
            self._log.skip(name, "it is neither a file, a folder nor a link")
        else:
            try:
                self.link(name, info.linkname)
            except BadArchiveError:
                self._log.skip(name, f"it is a link that may lead outside: {one_line(info.linkname)}")

    def _write_file(self, member: Member, name: str) -> None:
        *above, last = parts_of(name) or ("",)
        parent = self._enter(tuple(above))
        present = _status(last, parent)
        part = _part_of(last) + member.key
        assert member.content is not None
        if present is not None and _key_now(member, present) == member.key:
            _skip(member.content, member.info.size)
            self._log.moved(member.size)
            os.chmod(last, member.info.mode & 0o777, dir_fd=parent)
            return
        if present is not None and stat.S_ISDIR(present.st_mode):
            raise BadArchiveError(f"{one_line(name)} is both a folder and a file")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        out = os.open(part, flags, 0o600, dir_fd=parent)
        try:
            self._fill(out, member)
            os.fchmod(out, member.info.mode & 0o777)
            with suppress(OverflowError, ValueError):
                os.utime(out, (member.info.mtime, member.info.mtime))
            os.rename(part, last, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            if member.size < KEPT_FROM:
                with suppress(OSError):
                    os.unlink(part, dir_fd=parent)
            raise
        finally:
            os.close(out)

    def _fill(self, out: int, member: Member) -> None:
        """Appends the missing bytes to a part of a file."""
        assert member.content is not None
        status = os.fstat(out)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != os.geteuid():
            raise BadArchiveError("a part of a file is not this user's own")
        at = status.st_size
        if (member.offset and at != member.offset) or at > member.size:
            raise BadArchiveError("the sender leaves out bytes that this machine does not have")
        os.lseek(out, at, os.SEEK_SET)
        _skip(member.content, at - member.offset)
        self._log.moved(at)
        while data := member.content.read(min(PIECE, member.size - at)):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(out, rest) :]
            self._log.moved(len(data))
            at += len(data)
        if at != member.size:
            raise StateError(f"{one_line(member.info.name)} became shorter while it was read")


def _key_now(member: Member, status: os.stat_result) -> str:
    """Returns the key of the file that a member would replace."""
    if stat.S_ISREG(status.st_mode):
        return key_of(member.info.name, status.st_size, status.st_mtime)
    return ""


def _status(name: str, folder: int) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    return None


def receive(members: Iterable[Member], target: Path, log: Log) -> None:
    """Writes members to a path, which their top becomes.

    Raises:
        UsageError: the target cannot be written.
        StateError: a member would be outside of the target, or cannot be written.
    """
    iterator = iter(members)
    try:
        first = next(iterator)
        if first.info.isdir():
            _receive_folder(first, iterator, target, log)
        else:
            if target.is_dir():
                raise UsageError(f"{one_line(target)} is a folder", code="invalid_value")
            with closing(Receiver(target.parent, log)) as receiver:
                for member in itertools.chain([first], iterator):
                    if member.info.name:
                        raise BadArchiveError(f"{one_line(member.info.name)} is below a file")
                    receiver.write(member, target.name)
    except StopIteration:
        return  # it was skipped
    except BadArchiveError as error:
        raise InvalidArchiveError(error) from error
    except OSError as error:
        place = one_line(error.filename or target)
        hint = None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "repeat the command when there is space: it continues where it ended"
        raise StateError(f"{place} cannot be written: {error.strerror}", hint=hint) from error


def _receive_folder(first: Member, members: Iterator[Member], target: Path, log: Log) -> None:
    marker = target / PART
    created = marker.exists()
    if not target.is_dir():
        if target.exists():
            raise UsageError(f"{one_line(target)} is a file, the source is a folder", code="invalid_value")
        target.mkdir(0o700)
        marker.touch(0o600)
        created = True
    with closing(Receiver(target, log)) as receiver:
        for member in members:
            receiver.write(member, member.info.name)
        receiver.finish()
    if created:
        marker.unlink(missing_ok=True)
        target.chmod(first.info.mode & 0o777)
