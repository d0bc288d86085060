"""The provenance of an application as plain data: source, Python, machine, command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

from torchx import json_shape
from torchx.json_limits import Object
from torchx.json_shape import SystemText, one_of

SCHEMA = 1
"""Version of the format; all older versions can be read."""

MODIFIED, ADDED, DELETED, UNTRACKED = "modified", "added", "deleted", "untracked"
CONVERTED = "converted"
CHANGES = (MODIFIED, ADDED, DELETED, UNTRACKED, CONVERTED)
"""The kinds of changed files. An added one is known to git, but not part of the commit. A converted one is
unchanged for git, but has other bytes than the commit: other line ends, or the content of Git LFS."""

PROGRAM, LAUNCHER = "program", "launcher"
"""The origin of the recorded Python: the one that the first role runs, or the one that runs torchx."""

LINK, EXECUTABLE, PLAIN = 0o120000, 0o100755, 0o100644
MODES = (0, PLAIN, EXECUTABLE, LINK)
"""The modes of files, as git has them; 0 for a deleted file."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _path(value: Any, name: str) -> str:
    """Returns a relative path that stays in its folder, and names no part of a repository's own files."""
    path = json_shape.system_text(value, name)
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") or part == ".git" for part in parts):
        raise ValueError("`path` is not a path of a working tree")
    return path


def _matching(pattern: re.Pattern[str], value: Any, name: str) -> str:
    text = json_shape.handle_text(value, name)
    if text and not pattern.fullmatch(text):
        raise ValueError(f"`{name}` is invalid")
    return text


_Commit = Annotated[str, partial(_matching, _COMMIT)]
_Origin = Annotated[str, lambda value, _: PROGRAM if value == PROGRAM else LAUNCHER]


class File(NamedTuple):
    """A file of the working tree that differs from the commit.

    Attributes:
        path: its path in the working tree, with ``/``; it may have escaped bytes.
        change: one of :data:`CHANGES`.
        mode: one of :data:`MODES`.
        size: bytes; of a link, those of its target.
        digest: SHA-256 of the content; empty if the content is not kept.
        omitted: the reason why the content is not kept.
    """

    path: Annotated[str, _path]
    change: Annotated[str, one_of(CHANGES)]
    mode: Annotated[int, one_of(MODES)] = 0
    size: int = 0
    digest: Annotated[str, partial(_matching, _DIGEST)] = ""
    omitted: str = ""


class Submodule(NamedTuple):
    """A submodule; its changed files are in the list of all changed files.

    Attributes:
        path: its folder in the working tree.
        commit: its commit; empty if it was not checked out, or has no commit yet.
        objects: the folder with its objects; empty if it was not checked out.
        expected: the commit that the outer repository has for it.
    """

    path: Annotated[str, _path]
    commit: _Commit = ""
    objects: SystemText = ""
    expected: _Commit = ""


class Source(NamedTuple):
    """The state of a git repository.

    Attributes:
        folder: the root of the working tree.
        commit: the commit; empty before the first.
        branch: the branch; empty if none is checked out.
        remote: the address of the remote, without credentials.
        objects: the folder with the objects of the repository.
        files: the changed and untracked files.
        diff_size: bytes of the diff of the tracked files, None without one.
        submodules: the submodules.
        notes: the parts that are missing, and other facts, one sentence each.
        complete: the files were compared; False if only the commit is known.
        ignored: files and folders of the working tree that git ignores, such as data; not all of many.
    """

    folder: SystemText
    commit: _Commit = ""
    branch: str = ""
    remote: str = ""
    objects: SystemText = ""
    files: tuple[File, ...] = ()
    diff_size: int | None = None
    submodules: tuple[Submodule, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    ignored: tuple[SystemText, ...] = ()

    @property
    def changed(self) -> tuple[File, ...]:
        """The files that differ from the commit for git too."""
        return tuple(file for file in self.files if file.change != CONVERTED)

    @property
    def dirty(self) -> bool:
        """Whether a file, or the commit of a submodule, differs from the commit."""
        moved = any(each.commit not in ("", each.expected) for each in self.submodules)
        return moved or bool(self.changed)


class Editable(NamedTuple):
    """A package that is installed from a folder, which may have changed since.

    Attributes:
        path: the folder.
        commit: the commit of its repository; empty outside of one.
        dirty: whether a tracked file of its repository differed from the commit; None if not known.
    """

    path: SystemText
    commit: _Commit = ""
    dirty: bool | None = None


class Python(NamedTuple):
    """A Python and its packages.

    Attributes:
        version: its version.
        executable: its path.
        origin: :data:`PROGRAM` or :data:`LAUNCHER`.
        packages: the version of each installed package by its name.
        editable: those that are installed from a folder.
    """

    version: str
    executable: SystemText
    origin: _Origin = LAUNCHER
    packages: Mapping[str, str] = {}
    editable: Mapping[str, Editable] = {}


class Machine(NamedTuple):
    """The machine of the submission.

    Attributes:
        host: its name.
        user: the user.
        platform: operating system, kernel and architecture.
        gpus: the names of its GPUs.
        driver: the version of their driver.
    """

    host: str
    user: str = ""
    platform: str = ""
    gpus: tuple[str, ...] = ()
    driver: str = ""


class Provenance(NamedTuple):
    """The origin of an application.

    Attributes:
        submitted_at: the time of the submission, seconds since the epoch.
        torchx_version: the version of torchx.
        command_line: the command line, with secrets masked; empty for a submission from Python.
        directory: the working directory of the submission.
        live: the program runs in the working tree itself, which could change before it was read.
        recorded_at: the time at which the working tree had been read; None if that has not happened.
        source: the repository of the working directory; None without one, or if it is not known yet.
        python: the Python of the program, or that of torchx; None if it is not known yet.
        machine: the machine of the submission.
        notes: the parts that are missing, and other facts, one sentence each.
        recording: it is being recorded; the missing parts may follow.
    """

    submitted_at: float
    torchx_version: str = ""
    command_line: str = ""
    directory: SystemText = ""
    live: bool = False
    recorded_at: float | None = None
    source: Source | None = None
    python: Python | None = None
    machine: Machine | None = None
    notes: tuple[str, ...] = ()
    recording: bool = False

    def to_json(self) -> Object:
        """Returns plain data for ``json``."""
        return {"schema": SCHEMA, **_plain(self._asdict())}

    @classmethod
    def from_json(cls, data: Any) -> Provenance:
        """Returns the provenance of plain data; ignores unknown fields.

        Raises:
            KeyError: a required field is missing.
            TypeError: a field has another type.
            ValueError: a field is invalid, or the format is newer.
        """
        data = json_shape.mapping(data, "provenance")
        if json_shape.integer(data["schema"], "schema", minimum=1) > SCHEMA:
            raise ValueError(f"a newer version wrote it (schema {data['schema']}, known: {SCHEMA})")
        found: Provenance = json_shape.read(cls, data, "provenance")
        return found


def _plain(value: Any) -> Any:
    """Returns plain data for a value, the items of a collection and the fields of a record."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
