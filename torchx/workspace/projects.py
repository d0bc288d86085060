"""The projects of a workspace: their interface, and local folders, scanned without opening files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.machine.files import read_file
from torchx.suggestions import near_path
from torchx.workspace.ignore import BUILT_IN, FILES, LARGEST, PRIVATE, Rules, State, maybe_key, parse
from torchx.workspace.private import is_private_key

PIECE = 1 << 20
"""Bytes read at a time."""

SET_ID = stat.S_ISUID | stat.S_ISGID
LEAVE_OUT = "list files that you do not need in .torchxignore"


VANISHED = "was removed while the workspace was read: left out"


class VanishedError(StateError):
    """A file of a workspace was removed after the scan."""


class Entry(NamedTuple):
    """A file, a folder or a link of a workspace.

    Attributes:
        path: the path relative to the root of the workspace, with slashes.
        kind: file, dir or link.
        mode: the permissions.
        size: the size of a file in bytes.
        target: the target of a link.
    """

    path: str
    kind: str
    mode: int
    size: int
    target: str = ""


class Project(Protocol):
    """A source of files of a workspace.

    Attributes:
        name: the project as specified.
        left: the excluded paths by the source of the rule.
        notes: notes on special files, and on links out of the project.
    """

    name: str
    left: dict[str, list[str]]
    notes: list[str]

    def entries(self) -> Iterator[Entry]:
        """Yields the included entries, with paths relative to the project, each folder before its content."""

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yields the first ``size`` bytes of a file, or fewer if it has become shorter."""

    def local(self, path: str) -> str | None:
        """Returns the local path of a file, or None if it is not local."""


class Folder:
    """A local folder or file.

    Args:
        name: the project as specified.
        root: its absolute path.
        unfiltered: ignore the built-in list and the ignore files.

    Attributes:
        set_id: files that lose their set-user-id or set-group-id bit.
    """

    def __init__(self, name: str, root: str, *, unfiltered: bool = False) -> None:
        self.name = name
        self.left: dict[str, list[str]] = {}
        self.notes: list[str] = []
        try:
            is_dir = stat.S_ISDIR(os.stat(root).st_mode)  # noqa: PTH116  # a str, like all paths of a walk
        except OSError as error:
            raise missing(name, error) from None
        if is_dir:
            self._root, self._single = (root, "")
        else:
            self._root, self._single = os.path.split(root)
        self._homes = _state_homes()
        self._unfiltered = unfiltered
        self.set_id: list[str] = []

    def local(self, path: str) -> str:
        """Returns the absolute path of a file."""
        return f"{self._root}/{path}"

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yields the first ``size`` bytes of a file; data appended since the scan is left out."""
        follow = 0 if self._single else os.O_NOFOLLOW  # it was not a link when scanned
        try:
            # non-blocking, as it may have been replaced by a pipe
            opened = os.open(self.local(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow)
            try:
                while size > 0 and (piece := os.read(opened, min(size, PIECE))):
                    size -= len(piece)
                    yield piece
            finally:
                os.close(opened)
        except OSError as error:
            raise unreadable(self.name, path, error) from None

    def entries(self) -> Iterator[Entry]:
        """Yields the included entries, with paths relative to the project, each folder before its content."""
        if self._single:
            status = os.stat(self.local(self._single))  # noqa: PTH116
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"workspace `{self.name}` is neither a folder nor a file")
            yield Entry(self._single, "file", self._mode(self._single, status.st_mode), status.st_size)
            return
        rules = self.rules()
        waiting = [_Below("", rules.top, True)]
        while waiting:
            yield from self._folder(waiting.pop(), rules, waiting)
        self.notes += rules.notes()
        self.notes += set_id_notes(self.set_id)

    def rules(self) -> Rules:
        """Returns the exclusion rules of the folder.

        Raises:
            UsageError: an ignore file has an invalid line.
            StateError: an ignore file cannot be read.
        """
        files = () if self._unfiltered else FILES
        return Rules(
            [rule for file in files for rule in parse(self._text(file), file)], unfiltered=self._unfiltered
        )

    def _text(self, file: str) -> str:
        try:
            limit = 4 * LARGEST  # maximum bytes of LARGEST characters
            data = read_file(self.local(file), limit, own=False, follow=True)
        except (FileNotFoundError, IsADirectoryError):
            return ""
        except OSError as error:
            raise unreadable(self.name, file, error) from None
        return data.decode("utf-8", "surrogateescape")

    def _mode(self, path: str, mode: int) -> int:
        """Returns the permissions without set-id bits, as a copy has another owner."""
        if mode & SET_ID:
            self.set_id.append(path)
        return stat.S_IMODE(mode) & ~SET_ID

    def _folder(self, at: _Below, rules: Rules, waiting: list[_Below]) -> Iterator[Entry]:
        """Yields a folder and its files, and adds its subfolders to ``waiting``."""
        folder, prefix = self._root, ""
        if at.path:
            folder, prefix = self.local(at.path), f"{at.path}/"
        try:
            with os.scandir(folder) as opened:
                listed = list(opened)
            mode = stat.S_IMODE(os.stat(folder).st_mode) & ~SET_ID  # noqa: PTH116
        except OSError as error:
            if at.path and isinstance(error, FileNotFoundError):
                self.notes.append(f"{at.path} {VANISHED}")
                return
            raise unreadable(self.name, at.path or ".", error) from None
        if at.path and at.included:
            if self._is_environment(listed) and not rules.names(at.path):
                self._exclude(BUILT_IN, prefix)
                return
            yield Entry(at.path, "dir", mode, 0)
        for entry in listed:
            path = prefix + entry.name
            is_dir = entry.is_dir(follow_symlinks=False)
            why, state = rules.match(path, entry.name, at.state, is_dir=is_dir)
            if is_dir:
                if self._may_scan(entry, path, at, why, rules, state):
                    waiting.append(_Below(path, state, why is None))
            elif why is None:
                yield from self._file(entry, path, rules)
            elif at.included:
                self._exclude(why, path)

    def _may_scan(
        self, entry: os.DirEntry[str], path: str, at: _Below, why: str | None, rules: Rules, state: State
    ) -> bool:
        """Returns True if a subfolder has to be scanned; notes it if it is excluded."""
        if self._is_home(entry):
            self._exclude(BUILT_IN, f"{path}/")
            return False
        if why is not None and at.included:
            self._exclude(why, f"{path}/")
        return why is None or rules.may_include_below(path, state)

    def _is_environment(self, listed: Iterable[os.DirEntry[str]]) -> bool:
        """Returns True for a virtual environment, of any name, that is left out."""
        return not self._unfiltered and any(entry.name == "pyvenv.cfg" for entry in listed)

    def _is_key(self, path: str, rules: Rules) -> bool:
        return (
            maybe_key(path)
            and not self._unfiltered
            and not rules.names_key(path)
            and is_private_key(self.local(path))
        )

    def _file(self, entry: os.DirEntry[str], path: str, rules: Rules) -> Iterator[Entry]:
        """Yields a file or a link, unless it is left out."""
        if self._is_key(path, rules):
            self._exclude(PRIVATE, path)
            return
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                yield Entry(path, "file", self._mode(path, status.st_mode), status.st_size)
            elif stat.S_ISLNK(status.st_mode):
                yield Entry(path, "link", 0o777, 0, self._target(path, os.readlink(entry.path)))  # noqa: PTH115
            else:
                self.notes.append(f"{path} is neither a file nor a folder: left out")
        except FileNotFoundError:
            self.notes.append(f"{path} {VANISHED}")
        except OSError as error:
            raise unreadable(self.name, path, error) from None

    def _target(self, path: str, target: str) -> str:
        """Returns the target of a link, made relative if it is absolute and within the project."""
        here = os.path.dirname(path)  # noqa: PTH120
        if os.path.isabs(target):  # noqa: PTH117
            for root in (self._root, os.path.realpath(self._root)):
                inside = os.path.relpath(target, root)
                if inside.split("/")[0] != "..":
                    return os.path.relpath(inside, here or ".")
            self.notes.append(f"{path} links to {target}, outside of it: kept as a link")
        elif os.path.normpath(os.path.join(here, target)).split("/")[0] == "..":  # noqa: PTH118
            self.notes.append(f"{path} links to {target}, outside of it: kept as a link")
        return target

    def _exclude(self, why: str, path: str) -> None:
        self.left.setdefault(why, []).append(path)

    def _is_home(self, entry: os.DirEntry[str]) -> bool:
        return entry.name in self._homes and os.path.realpath(entry.path) == self._homes[entry.name]


class _Below(NamedTuple):
    """A folder to scan.

    Attributes:
        path: its path in the project.
        state: the rules' state for it.
        included: whether the folder itself is included; otherwise only some of its content may be.
    """

    path: str
    state: State
    included: bool


def _state_homes() -> dict[str, str]:
    """Returns the state home by its name; it is never copied, as the copy may be inside it."""
    configured = os.environ.get(settings.TORCHX_HOME)
    home = os.path.realpath(os.path.expanduser(configured)) if configured else ""  # noqa: PTH111
    return {os.path.basename(home): home} if home else {}  # noqa: PTH119


def set_id_notes(paths: list[str]) -> list[str]:
    """Returns a note on files that lose their set-user-id and set-group-id bits, if any.

    >>> set_id_notes(["bin/a"])
    ['bin/a loses its set-user-id or set-group-id bit']
    """
    if not paths:
        return []
    more = " loses its"
    if len(paths) > 1:
        more = f" and {len(paths) - 1:,} more lose their"
    return [f"{min(paths)}{more} set-user-id or set-group-id bit"]


def missing(name: str, error: OSError) -> UsageError:
    """Returns the error for a project that cannot be opened."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        hint = near_path(name)
        return UsageError(f"workspace `{name}` does not exist", code="unknown_workspace", hint=hint)
    return UsageError(f"workspace `{name}` cannot be opened: {error.strerror or error}")


def unreadable(name: str, path: str, why: OSError | str, hint: str | None = LEAVE_OUT) -> StateError:
    """Returns the error for a file that cannot be read."""
    subject = f"`{path}` of workspace `{name}`" if path != "." else f"workspace `{name}`"
    reason = why if isinstance(why, str) else why.strerror or str(why)
    kind = VanishedError if isinstance(why, FileNotFoundError) else StateError
    return kind(f"{subject} cannot be read: {reason}", hint=hint)
