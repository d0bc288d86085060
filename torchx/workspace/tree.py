"""The files of a workspace: all its projects as one tree, with a digest, to be packed or copied.

Looking at a tree opens no file: sizes are known and limits hold before anything is read. What a tree hands
out is what was looked at: of a file that has grown since, what it was; one that has become another is told.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.errors import StateError, UsageError
from torchx.specs.workspace import Workspace
from torchx.suggestions import without_password
from torchx.workspace.found import Entry as Entry
from torchx.workspace.found import Folder, Project, set_id_notes
from torchx.workspace.packing import MADE as MADE
from torchx.workspace.packing import Writes, pack

if TYPE_CHECKING:
    from torchx.specs.app import Role

LIMIT_MB = 1024
"""MB that a workspace may have unless told."""

LARGE_MB = 100
"""MB from which on a workspace is told to be large."""

FRESH = 2.0
"""Seconds after which a tree is looked at again before it is copied."""

_URL = re.compile(r"[\w.+-]+(?:://|::)")


class Tree:
    """All that comes along of a workspace.

    Attributes:
        entries: files, folders and links by path; every folder on the way to one is among them.
        size: bytes of all files.
        files: how many files.
        notes: what a person should know: links that lead out, what is left out for what it is.
        left: what stays behind, by the file that says so.
        set_id: those of the notes that name files which lose their set-id bits.
    """

    def __init__(
        self,
        where: dict[str, tuple[Entry, Project, str]],
        notes: list[str],
        left: dict[str, list[str]],
        workspace: Workspace,
        set_id: Iterable[str] = (),
    ) -> None:
        self.set_id = tuple(set_id)
        self._where = where
        self._workspace = workspace
        self._looked_at = time.monotonic()
        self.entries: tuple[Entry, ...] = tuple(where[path][0] for path in sorted(where))
        sizes = [entry.size for entry in self.entries if entry.kind == "file"]
        self.size, self.files = sum(sizes), len(sizes)
        self.notes = notes
        self.left = left
        self._hashes: dict[str, bytes] = {}
        self._digest = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Tree:
        return self  # it is never changed, and a role is copied for each replica

    def __repr__(self) -> str:
        return f"Tree({self.files} files, {self.size} bytes)"

    def to_dict(self) -> dict[str, Any]:
        """Returns what there is to say about it, as plain data; reads all files once."""
        return {
            "files": self.files,
            "size": self.size,
            "digest": self.digest,
            "left_out": {source: sorted(paths) for source, paths in sorted(self.left.items())},
        }

    def refreshed(self, limit_mb: int | None = LIMIT_MB) -> Tree:
        """Returns the tree as it is now; this one when it was looked at just before."""
        fresh = time.monotonic() - self._looked_at < FRESH
        return self if fresh else scan(self._workspace, limit_mb)

    @property
    def digest(self) -> str:
        """The SHA-256 of names, kinds, executable bits, link targets and contents; reads all files once.

        Equal trees have equal digests, on all machines.

        Raises:
            StateError: a file cannot be read, or has become shorter since it was looked at.
        """
        if not self._digest:
            whole = hashlib.sha256()
            for entry in self.entries:
                whole.update(_head(entry))
                if entry.kind == "file":
                    whole.update(self._hash(entry))
            self._digest = whole.hexdigest()
        return self._digest

    def _hash(self, entry: Entry) -> bytes:
        known = self._hashes.get(entry.path)
        if known is None:
            one = hashlib.sha256()
            for piece in self._pieces(entry):
                one.update(piece)
            known = self._hashes[entry.path] = one.digest()
        return known

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        """Yields a file as it was looked at.

        Raises:
            StateError: it has become another since.
        """
        _, project, path = self._where[entry.path]
        left = entry.size
        known = self._hashes.get(entry.path)
        one = hashlib.sha256() if known is not None else None
        for piece in project.pieces(path, entry.size):
            left -= len(piece)
            if one is not None:
                one.update(piece)
            yield piece
        if left or (one is not None and one.digest() != known):
            raise StateError(
                f"`{path}` of workspace `{project.name}` changed while it was read",
                hint="run it again; what changes all the time can be left out: a line in .torchxignore",
            )

    def read(self, entry: Entry) -> bytes:
        """Returns the content of a file.

        Raises:
            StateError: it cannot be read, or has become another since it was looked at.
        """
        return b"".join(self._pieces(entry))

    def find(self, path: str) -> Entry | None:
        """Returns what lies at a path, None when nothing does."""
        found = self._where.get(path)
        return None if found is None else found[0]

    def write_tar(self, fileobj: Writes, *, below: str = "") -> None:
        """Writes the tree as a tar archive: equal trees give equal bytes.

        Sorted, all of one time and root's.

        Args:
            fileobj: what takes the bytes.
            below: a folder of the archive to put all of it in.

        Raises:
            StateError: a file cannot be read, or has become another since it was looked at.
        """
        pack(self.entries, self._pieces, fileobj, below)

    def write_to(self, folder: Path, *, into_existing: bool = False) -> None:
        """Copies the tree into a folder: real copies, with permissions, links and empty folders.

        Args:
            folder: made when it is not there.
            into_existing: other files may lie there; those of the tree take the place of their namesakes.

        Raises:
            StateError: a file cannot be read or written, or has become shorter since it was looked at.
        """
        from torchx.workspace.copying import write

        places = (
            (entry, project.local(path) if entry.kind == "file" else None)
            for entry, project, path in (self._where[entry.path] for entry in self.entries)
        )
        write(places, self._pieces, folder, into_existing=into_existing)


class Scanned(Workspace):
    """A workspace that was looked at at a dry-run, in place of the one that was asked for.

    Args:
        workspace: what was asked for.
        tree: what it holds.
        plan: what the scheduler means to do with it.
    """

    def __init__(self, workspace: Workspace, tree: Tree, plan: Any = None) -> None:
        super().__init__(dict(workspace.projects))
        self.tree = tree
        self.plan = plan

    def __deepcopy__(self, memo: dict[int, Any]) -> Scanned:
        return Scanned(self, self.tree, self.plan)  # a role is copied for each replica


def look_at(role: Role, limit_mb: int | None = LIMIT_MB) -> Scanned:
    """Looks at the workspace of a role, which then stands in the role with its tree.

    Two roles with equal workspaces are looked at one by one: see :func:`look_at_all`.
    """
    assert role.workspace is not None
    if not isinstance(role.workspace, Scanned):
        role.workspace = Scanned(role.workspace, scan(role.workspace, limit_mb))
    return role.workspace


def look_at_all(roles: Iterable[Role], limit_mb: int | None = LIMIT_MB) -> list[tuple[Role, Scanned]]:
    """Looks at the workspaces of roles, each only once, and returns those roles that have one."""
    known: dict[tuple[tuple[str, str], ...], Tree] = {}
    found = []
    for role in roles:
        if role.workspace:
            key = tuple(role.workspace.projects.items())
            if key in known and not isinstance(role.workspace, Scanned):
                role.workspace = Scanned(role.workspace, known[key])
            found.append((role, look_at(role, limit_mb)))
            known[key] = found[-1][1].tree
    return found


def scan(workspace: Workspace, limit_mb: int | None = LIMIT_MB) -> Tree:
    """Looks at all projects of a workspace; later ones win over earlier ones.

    Args:
        workspace: folders or files of this machine or at any address of fsspec.
        limit_mb: MB that it may have; None for any number.

    Raises:
        UsageError: a project does not exist or cannot be reached, an ignore file cannot be understood, a
            target lies outside, two projects do not fit together, or the limit is passed.
        StateError: something cannot be read.
    """
    from torchx.workspace.sizes import Sizes, left_out

    where: dict[str, tuple[Entry, Project, str]] = {}
    notes: list[str] = []
    left: dict[str, list[str]] = {}
    sizes = Sizes(str(workspace), limit_mb)
    for name, target in workspace.projects.items():
        project = open_project(name)
        at = _target(name, target)
        for entry in project.entries():
            path = f"{at}/{entry.path}" if at else entry.path
            where[path] = (entry._replace(path=path), project, entry.path)
            sizes.add(path, entry.size)
        for why, paths in project.left.items():
            left.setdefault(why, []).extend(f"{at}/{path}" if at else path for path in paths)
        notes += [f"workspace `{project.name}`: {line}" for line in project.odd]
        if at:
            where.setdefault(at, (Entry(at, "dir", 0o755, 0), project, ""))
    sizes.refuse()
    _add_parents(where)
    tree = Tree(where, notes, left, workspace)
    if any(left.values()):
        notes.append(left_out(shown(str(workspace)), tree.files, tree.size, left))
    if not tree.files:
        notes.append(f"workspace `{shown(str(workspace))}` has no files")
    elif tree.size >= LARGE_MB * 1_000_000:
        notes.append(sizes.told())
    return tree


def whole(folder: str) -> Tree:
    """Looks at all that a folder holds, whatever ignore files say."""
    project = Folder(folder, folder, whole=True)
    where: dict[str, tuple[Entry, Project, str]] = {
        entry.path: (entry, project, entry.path) for entry in project.entries()
    }
    return Tree(where, project.odd, {}, Workspace({folder: ""}), set_id_notes(project.set_id))


def open_project(name: str) -> Project:
    """Returns a project by its path or address; looks whether it is there, where that is on this machine."""
    if name.startswith(("file://", "local://")) and "::" not in name:
        from urllib.parse import unquote

        path = name.partition("://")[2]
        return Folder(name, os.path.abspath(path if os.path.exists(path) else unquote(path)))  # noqa: PTH100, PTH110
    if not _URL.match(name):
        return Folder(name, os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111
    from torchx.workspace.remote import Remote

    return Remote(shown(name), name)


def shown(name: str) -> str:
    """Returns the name of a project without the password that may stand in an address.

    >>> shown("ftp://me:secret@host/src")
    'ftp://me:***@host/src'
    """
    return without_password(name)


def _target(name: str, target: str) -> str:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    if target.startswith("/") or ".." in parts:
        raise UsageError(f"workspace project `{shown(name)}` goes to `{target}`, outside the job's root")
    return "/".join(parts)


def _add_parents(where: dict[str, tuple[Entry, Project, str]]) -> None:
    """Adds the folders that nobody named, and refuses what would lie below a file or a link."""
    for path, (_, project, _) in list(where.items()):
        above = path.rpartition("/")[0]
        while above:
            known = where.get(above)
            if known is not None and known[0].kind != "dir":
                raise UsageError(
                    f"`{above}` is a {known[0].kind} in workspace `{known[1].name}`, and a folder in "
                    f"`{project.name}`",
                    hint="give one of them a folder of its own, as in {lib: lib, app: null}",
                )
            if known is not None:
                break
            where[above] = (Entry(above, "dir", 0o755, 0), project, "")
            above = above.rpartition("/")[0]


def _head(entry: Entry) -> bytes:
    runs = "x" if entry.kind == "file" and entry.mode & 0o100 else "-"
    path, target = os.fsencode(entry.path), os.fsencode(entry.target)
    return f"{entry.kind} {runs} {entry.size} {len(path)} {len(target)}\n".encode() + path + target
