"""The files of a workspace: all its projects as one tree, with a digest, to pack or copy.

A scan opens no file, so sizes and limits are checked before anything is read. A tree returns the files as
scanned: data appended since is left out, and so are files that were removed since. If the digest includes
such a file, it is still returned if it is small. Other changes raise an error.
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
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.specs.workspace import Workspace
from torchx.suggestions import without_password
from torchx.workspace.options import LIMIT_MB, hold, limit_of
from torchx.workspace.packing import MADE as MADE
from torchx.workspace.packing import Writable, pack
from torchx.workspace.projects import VANISHED, Folder, Project, VanishedError, set_id_notes
from torchx.workspace.projects import Entry as Entry

with lazy_imports:
    from urllib import parse

    from torchx.workspace import copying, remote
    from torchx.workspace import sizes as workspace_sizes

if TYPE_CHECKING:
    from torchx.specs.app import Role
    from torchx.specs.run_options import RunOptions

LARGE_MB = 100
"""Size in MB from which a note names the largest folders."""

FRESH = 2.0
"""Seconds after which a tree is scanned again before it is copied."""

LARGEST_KEPT, ALL_KEPT = 1 << 16, 1 << 25
"""Maximum bytes of a file, and of all files, whose content is kept with its hash: it may vanish later."""

LARGEST_HELD = 1 << 28
"""Maximum bytes of a workspace that is kept as a whole, see :data:`torchx.workspace.options.hold`."""

_URL = r"[\w.+-]+(?:://|::)"

Sources = dict[str, tuple[Entry, Project, str]]
"""By path in a workspace: the entry, its project, and its path there."""


class Tree:
    """The included files of a workspace.

    Attributes:
        entries: files, folders and links, sorted by path, including all parent folders.
        size: total bytes of the files.
        files: number of files.
        notes: notes for the user, such as links out of the workspace and excluded files.
        left: the excluded paths by the source of the rule.
        set_id: the notes on files that lose their set-id bits.
        vanished: the notes on files that were removed since the scan.
    """

    def __init__(
        self,
        where: Sources,
        notes: list[str],
        left: dict[str, list[str]],
        workspace: Workspace,
        set_id: Iterable[str] = (),
    ) -> None:
        self.set_id = tuple(set_id)
        self._where = where
        self._workspace = workspace
        self._scanned_at = time.monotonic()
        self.entries: tuple[Entry, ...] = tuple(where[path][0] for path in sorted(where))
        sizes = [entry.size for entry in self.entries if entry.kind == "file"]
        self.size, self.files = sum(sizes), len(sizes)
        self.notes = notes
        self.left = left
        self.vanished: list[str] = []
        self._hashes: dict[str, bytes] = {}
        self._kept: dict[str, bytes] = {}
        self._largest_kept, self._room = LARGEST_KEPT, ALL_KEPT
        self._held = False
        self._digest = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Tree:
        return self  # immutable, and a role is copied for each replica

    def __repr__(self) -> str:
        return f"Tree({self.files} files, {self.size} bytes)"

    def to_dict(self) -> Object:
        """Returns a summary as plain data; reads all files once."""
        return {
            "files": self.files,
            "size": self.size,
            "digest": self.digest,
            "left_out": {source: sorted(paths) for source, paths in sorted(self.left.items())},
        }

    def refreshed(self, limit_mb: int | None = LIMIT_MB) -> Tree:
        """Scans the workspace again, unless it is held or was scanned less than :data:`FRESH` seconds ago."""
        fresh = time.monotonic() - self._scanned_at < FRESH
        if fresh or self._held:
            return self
        return scan(self._workspace, limit_mb)

    def hold(self) -> None:
        """Keeps all files in memory as they are now, unless they exceed :data:`LARGEST_HELD` together."""
        if self.size <= LARGEST_HELD:
            self._largest_kept = self._room = LARGEST_HELD
            self.digest  # noqa: B018 - it reads and keeps the files
            self._held = True

    @property
    def digest(self) -> str:
        """The SHA-256 of names, kinds, executable bits, link targets and contents; reads all files once.

        Equal trees have equal digests, on all machines.

        Raises:
            StateError: a file cannot be read, or has become shorter since the scan.
        """
        if not self._digest:
            total = hashlib.sha256()
            read = []
            for entry in self.entries:
                try:
                    content = b""
                    if entry.kind == "file":
                        content = self._hash(entry)
                except VanishedError:
                    continue
                total.update(_head(entry) + content)
                read.append(entry)
            self.entries, self._digest = tuple(read), total.hexdigest()
        return self._digest

    def _hash(self, entry: Entry) -> bytes:
        known = self._hashes.get(entry.path)
        if known is None:
            content, kept = hashlib.sha256(), bytearray()
            is_kept = entry.size <= min(self._largest_kept, self._room)
            for piece in self._pieces(entry):
                content.update(piece)
                kept += piece if is_kept else b""
            known = self._hashes[entry.path] = content.digest()
            if is_kept:
                self._room -= entry.size
                self._kept[entry.path] = bytes(kept)
        return known

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        """Yields a file's content as scanned.

        Raises:
            VanishedError: it was removed since, and the tree has no digest yet.
            StateError: it has changed since.
        """
        _, project, path = self._where[entry.path]
        if self._held and entry.path in self._kept:
            yield self._kept[entry.path]
            return
        left = entry.size
        known = self._hashes.get(entry.path)
        content = None
        if known is not None:
            content = hashlib.sha256()
        try:
            for piece in project.pieces(path, entry.size):
                left -= len(piece)
                if content is not None:
                    content.update(piece)
                yield piece
        except VanishedError:
            if (kept := self._kept.get(entry.path)) is not None:
                yield kept
                return
            if not self._digest:
                self.vanished.append(f"workspace `{project.name}`: {path} {VANISHED}")
                self.notes.append(self.vanished[-1])
                raise
        if left or (content is not None and content.digest() != known):
            raise StateError(
                f"`{path}` of workspace `{project.name}` changed while it was read",
                hint="run it again, or list files that keep changing in .torchxignore",
            )

    def read(self, entry: Entry) -> bytes:
        """Returns the content of a file.

        Raises:
            StateError: it cannot be read, or has changed since the scan.
        """
        return b"".join(self._pieces(entry))

    def file_digest(self, entry: Entry) -> str:
        """Returns the SHA-256 of the content of a file.

        Raises:
            StateError: it cannot be read, or has changed since the scan.
        """
        return self._hash(entry).hex()

    def find(self, path: str) -> Entry | None:
        """Returns the entry at a path, or None."""
        known = self._where.get(path)
        if known is None:
            return None
        return known[0]

    def write_tar(self, fileobj: Writable, *, below: str = "") -> None:
        """Writes the tree as a reproducible tar archive: sorted, with a fixed time, owned by root.

        Args:
            fileobj: the file object to write to.
            below: a folder of the archive to put the tree in.

        Raises:
            StateError: a file cannot be read, or has changed since the scan.
        """
        pack(self.entries, self._pieces, fileobj, below)

    def write_to(self, folder: Path, *, into_existing: bool = False) -> None:
        """Copies the tree into a folder, with permissions, links and empty folders.

        Args:
            folder: the folder; created if missing.
            into_existing: the folder may contain files; the tree's replace those of the same name.

        Raises:
            StateError: a file cannot be read or written, or has become shorter since the scan.
        """
        sources = (
            (entry, project.local(path) if entry.kind == "file" and not self._held else None)
            for entry, project, path in (self._where[entry.path] for entry in self.entries)
        )
        copying.write(sources, self._pieces, folder, into_existing=into_existing)


def scan_workspaces(roles: Iterable[Role], cfg: RunOptions) -> list[tuple[Role, Tree]]:
    """Scans the workspaces of roles, equal ones only once; returns the roles that have one.

    Args:
        roles: the roles; not changed.
        cfg: run options; ``workspace_limit_mb`` is the maximum size of each workspace.
    """
    known: dict[tuple[tuple[str, str], ...], Tree] = {}
    scanned = []
    for role in roles:
        if role.workspace:
            key = tuple(role.workspace.projects.items())
            if key not in known:
                known[key] = scan(role.workspace, limit_of(cfg))
                if hold.get():
                    known[key].hold()
            scanned.append((role, known[key]))
    return scanned


def scan(workspace: Workspace, limit_mb: int | None = LIMIT_MB) -> Tree:
    """Scans all projects of a workspace; later ones override earlier ones.

    Args:
        workspace: local folders or files, or fsspec addresses.
        limit_mb: the maximum size in MB; None for no limit.

    Raises:
        UsageError: a project does not exist or cannot be opened, an ignore file is invalid, a target is
            outside the job's root, two projects conflict, or the workspace is too large.
        StateError: a file or folder cannot be read.
    """
    where: Sources = {}
    notes: list[str] = []
    left: dict[str, list[str]] = {}
    sizes = workspace_sizes.Sizes(str(workspace), limit_mb)
    for name, target in workspace.projects.items():
        project = open_project(name)
        at = _target(name, target)
        for entry in project.entries():
            path = f"{at}/{entry.path}" if at else entry.path
            where[path] = (entry._replace(path=path), project, entry.path)
            sizes.add(path, entry.size)
        for why, paths in project.left.items():
            left.setdefault(why, []).extend(f"{at}/{path}" if at else path for path in paths)
        notes += [f"workspace `{project.name}`: {line}" for line in project.notes]
        if at:
            where.setdefault(at, (Entry(at, "dir", 0o755, 0), project, ""))
    sizes.check()
    _add_parents(where)
    tree = Tree(where, notes, left, workspace)
    if any(left.values()):
        notes.append(workspace_sizes.left_out(shown(str(workspace)), tree.files, tree.size, left))
    if not tree.files:
        notes.append(f"workspace `{shown(str(workspace))}` has no files")
    elif tree.size >= LARGE_MB * 1_000_000:
        notes.append(sizes.summary())
    return tree


def scan_unfiltered(folder: str) -> Tree:
    """Scans a folder without applying any exclusions."""
    project = Folder(folder, folder, unfiltered=True)
    where: Sources = {entry.path: (entry, project, entry.path) for entry in project.entries()}
    return Tree(where, project.notes, {}, Workspace({folder: ""}), set_id_notes(project.set_id))


def open_project(name: str) -> Project:
    """Opens a project by its path or address.

    Raises:
        UsageError: it is local and does not exist, or its address is not supported.
        StateError: its address cannot be opened.
    """
    if name.startswith(("file://", "local://")) and "::" not in name:
        path = name.partition("://")[2]
        return Folder(name, os.path.abspath(path if os.path.exists(path) else parse.unquote(path)))  # noqa: PTH100, PTH110
    if not re.match(_URL, name):
        return Folder(name, os.path.abspath(os.path.expanduser(name)))  # noqa: PTH100, PTH111

    return remote.Remote(shown(name), name)


def shown(name: str) -> str:
    """Returns the name of a project with the password of an address masked.

    >>> shown("ftp://me:secret@host/src")
    'ftp://me:***@host/src'
    """
    return without_password(name)


def _target(name: str, target: str) -> str:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    if target.startswith("/") or ".." in parts:
        raise UsageError(f"target `{target}` of workspace project `{shown(name)}` is outside the job's root")
    return "/".join(parts)


def _add_parents(where: Sources) -> None:
    """Adds missing parent folders; raises if a parent is a file or a link."""
    for path, (_, project, _) in list(where.items()):
        above = path.rpartition("/")[0]
        while above:
            known = where.get(above)
            if known is not None and known[0].kind != "dir":
                raise UsageError(
                    f"`{above}` is a {known[0].kind} in workspace `{known[1].name}`, but a folder in "
                    f"`{project.name}`",
                    hint="map one of them to its own folder, e.g. {lib: lib, app: null}",
                )
            if known is not None:
                break
            where[above] = (Entry(above, "dir", 0o755, 0), project, "")
            above = above.rpartition("/")[0]


def _head(entry: Entry) -> bytes:
    executable = "-"
    if entry.kind == "file" and entry.mode & 0o100:
        executable = "x"
    path, target = os.fsencode(entry.path), os.fsencode(entry.target)
    return f"{entry.kind} {executable} {entry.size} {len(path)} {len(target)}\n".encode() + path + target
