"""What a project in a folder of this machine holds: one walk, no file opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.workspace.ignore import BUILT_IN, FILES, LARGEST, PRIVATE, Rules, State, maybe_key, parse
from torchx.workspace.private import is_private_key

PIECE = 1 << 20
"""Bytes that are read at once."""

SET_ID = stat.S_ISUID | stat.S_ISGID
LEAVE_OUT = "what is not needed can be left out: a line in .torchxignore"


class Entry(NamedTuple):
    """A file, a folder or a link of a workspace.

    Attributes:
        path: where it lies below the root of the workspace, with slashes.
        kind: file, dir or link.
        mode: its permissions.
        size: bytes of a file.
        target: where a link leads.
    """

    path: str
    kind: str
    mode: int
    size: int
    target: str = ""


class Project(Protocol):
    """Where some files of a workspace come from.

    Attributes:
        name: the project as it was named.
        left: what stays behind, by the file that says so.
        odd: what cannot come along, or leads out of it.
    """

    name: str
    left: dict[str, list[str]]
    odd: list[str]

    def entries(self) -> Iterator[Entry]:
        """Yields what comes along, with paths within the project, a folder before what is in it."""
        ...

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yields the first so many bytes of a file; fewer when it has become shorter."""
        ...

    def local(self, path: str) -> str | None:
        """Returns where a file lies on this machine; None where it does not."""
        ...


class Folder:
    """A project in a folder of this machine, or one file of it.

    Args:
        name: the project as it was named.
        root: where it lies, absolute.
        whole: all of it comes along, whatever the built-in list and ignore files say.

    Attributes:
        set_id: files that lose their set-user-id or set-group-id bit.
    """

    def __init__(self, name: str, root: str, *, whole: bool = False) -> None:
        self.name = name
        self.left: dict[str, list[str]] = {}
        self.odd: list[str] = []
        try:
            is_dir = stat.S_ISDIR(os.stat(root).st_mode)  # noqa: PTH116  # a str, like all paths of a walk
        except OSError as error:
            raise missing(name, error) from None
        self._root, self._single = (root, "") if is_dir else os.path.split(root)
        self._homes = _state_homes()
        self._whole = whole
        self.set_id: list[str] = []

    def local(self, path: str) -> str:
        """Returns where a file lies."""
        return f"{self._root}/{path}"

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yields the first so many bytes of a file; what it has grown since is left alone."""
        follow = 0 if self._single else os.O_NOFOLLOW  # it was no link a moment ago
        try:
            # not O_CREAT, and never waits: a pipe may stand in its place by now
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
        """Yields what comes along, with paths within the project, a folder before what is in it."""
        if self._single:
            status = os.stat(self.local(self._single))  # noqa: PTH116
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"workspace `{self.name}` is neither a folder nor a file")
            yield Entry(self._single, "file", self._mode(self._single, status.st_mode), status.st_size)
            return
        files = () if self._whole else FILES
        rules = Rules([rule for file in files for rule in parse(self._text(file), file)], whole=self._whole)
        waiting = [_Below("", rules.top, True)]
        while waiting:
            yield from self._folder(waiting.pop(), rules, waiting)
        self.odd += rules.notes()
        self.odd += set_id_notes(self.set_id)

    def _text(self, file: str) -> str:
        from torchx.machine.files import read_file

        try:
            most = 4 * LARGEST  # the most bytes of so many characters
            data = read_file(self.local(file), most, own=False, follow=True)
        except (FileNotFoundError, IsADirectoryError):
            return ""
        except OSError as error:
            raise unreadable(self.name, file, error) from None
        return data.decode("utf-8", "surrogateescape")

    def _mode(self, path: str, mode: int) -> int:
        """Returns the permissions of a file as they are copied: a copy has another owner."""
        if mode & SET_ID:
            self.set_id.append(path)
        return stat.S_IMODE(mode) & ~SET_ID

    def _folder(self, at: _Below, rules: Rules, waiting: list[_Below]) -> Iterator[Entry]:
        """Yields a folder and the files in it, and adds the folders in it to those that wait."""
        place = self.local(at.path) if at.path else self._root
        try:
            with os.scandir(place) as opened:
                found = list(opened)
            mode = stat.S_IMODE(os.stat(place).st_mode) & ~SET_ID  # noqa: PTH116
        except OSError as error:
            raise unreadable(self.name, at.path or ".", error) from None
        if at.path:
            # an environment of Python, whatever it is called
            is_venv = any(entry.name == "pyvenv.cfg" for entry in found)
            if is_venv and at.comes and not self._whole and not rules.names(at.path):
                self._leave(BUILT_IN, f"{at.path}/")
                return
            if at.comes:
                yield Entry(at.path, "dir", mode, 0)
        prefix = f"{at.path}/" if at.path else ""
        for entry in found:
            path = prefix + entry.name
            is_dir = entry.is_dir(follow_symlinks=False)
            why, state = rules.look(path, entry.name, at.state, is_dir=is_dir)
            if is_dir:
                if self._homes and entry.name in self._homes and self._is_home(entry):
                    self._leave(BUILT_IN, f"{path}/")
                    continue
                if why is not None and at.comes:
                    self._leave(why, f"{path}/")
                if why is None or rules.may_take_below(path, state):
                    waiting.append(_Below(path, state, why is None))
            elif why is None:
                if maybe_key(path) and self._is_key(path, rules):
                    self._leave(PRIVATE, path)
                elif (known := self._file(entry, path)) is not None:
                    yield known
            elif at.comes:
                self._leave(why, path)

    def _is_key(self, path: str, rules: Rules) -> bool:
        return not self._whole and not rules.names_key(path) and is_private_key(self.local(path))

    def _file(self, entry: os.DirEntry[str], path: str) -> Entry | None:
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                return Entry(path, "file", self._mode(path, status.st_mode), status.st_size)
            if stat.S_ISLNK(status.st_mode):
                return Entry(path, "link", 0o777, 0, self._target(path, os.readlink(entry.path)))  # noqa: PTH115
        except FileNotFoundError:
            return None  # removed at this very moment
        except OSError as error:
            raise unreadable(self.name, path, error) from None
        self.odd.append(f"{path} is neither a file nor a folder: left out")
        return None

    def _target(self, path: str, target: str) -> str:
        """Returns where a link leads as seen from its place, when that is in the project."""
        here = os.path.dirname(path)  # noqa: PTH120
        if os.path.isabs(target):  # noqa: PTH117
            for root in (self._root, os.path.realpath(self._root)):
                inside = os.path.relpath(target, root)
                if inside.split("/")[0] != "..":
                    return os.path.relpath(inside, here or ".")
            self.odd.append(f"{path} is a link out of it, to {target}: kept as a link")
        elif os.path.normpath(os.path.join(here, target)).split("/")[0] == "..":  # noqa: PTH118
            self.odd.append(f"{path} is a link out of it, to {target}: kept as a link")
        return target

    def _leave(self, why: str, path: str) -> None:
        self.left.setdefault(why, []).append(path)

    def _is_home(self, entry: os.DirEntry[str]) -> bool:
        return os.path.realpath(entry.path) == self._homes[entry.name]


class _Below(NamedTuple):
    """A folder that is still to be looked at.

    Attributes:
        path: where it lies in the project.
        state: what was found of it.
        comes: it comes along itself, not only some of what is in it.
    """

    path: str
    state: State
    comes: bool


def _state_homes() -> dict[str, str]:
    """Returns the folder that holds the jobs, by its name: a copy of it would hold itself."""
    told = os.environ.get(settings.TORCHX_HOME)
    home = os.path.realpath(os.path.expanduser(told)) if told else ""  # noqa: PTH111
    return {os.path.basename(home): home} if home else {}  # noqa: PTH119


def set_id_notes(paths: list[str]) -> list[str]:
    """Returns what there is to say about files that lose their set-user-id and set-group-id bits.

    >>> set_id_notes(["bin/a"])
    ['bin/a loses its set-user-id or set-group-id bit']
    """
    if not paths:
        return []
    more = f" and {len(paths) - 1:,} more lose their" if len(paths) > 1 else " loses its"
    return [f"{min(paths)}{more} set-user-id or set-group-id bit"]


def missing(name: str, error: OSError) -> UsageError:
    """Returns the error of a project that cannot be looked at."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return UsageError(f"workspace `{name}` does not exist")
    return UsageError(f"workspace `{name}` cannot be looked at: {error.strerror or error}")


def unreadable(name: str, path: str, why: OSError | str, hint: str | None = LEAVE_OUT) -> StateError:
    """Returns the error of a file that cannot be read."""
    what = f"`{path}` of workspace `{name}`" if path != "." else f"workspace `{name}`"
    reason = why if isinstance(why, str) else why.strerror or str(why)
    return StateError(f"{what} cannot be read: {reason}", hint=hint)
