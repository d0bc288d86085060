"""The differences between a working tree and its commit, compared byte by byte."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from torchx.provenance.git import Deadline, Git, GitError
from torchx.provenance.model import (
    ADDED,
    CONVERTED,
    DELETED,
    MODIFIED,
    UNTRACKED,
    File,
)
from torchx.provenance.repository import Repository, lfs_file
from torchx.provenance.selection import Selection
from torchx.provenance.store import LARGEST_DIFF, LARGEST_FILE, Store
from torchx.provenance.tree_files import Found, TreeFiles
from torchx.workspace.ignore import is_built_in

MOST_FILES = 10_000
"""Maximum number of files whose content is kept."""

LARGEST_TOTAL = 1 << 26
"""Maximum bytes of the content of all files that is kept."""

LARGEST_READ = 1 << 32
"""Maximum bytes of unchanged files that are read to find those with converted content."""

MOST_IGNORED = 100
"""Maximum number of ignored files and folders that are named."""

GITLINK = 0o160000
_CONVERSIONS = rb"\b(?:text|eol|crlf|ident|filter|working-tree-encoding)\b"
_POINTER = rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n"
_LARGEST_POINTER = 1024


class Known(NamedTuple):
    """An entry of a commit or of the index.

    Attributes:
        mode: its mode.
        name: the name of its object.
    """

    mode: int
    name: str


class Budget:
    """The time, the number and the bytes of files that may still be kept.

    Args:
        deadline: the time until which files are read.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._files, self._bytes = MOST_FILES, LARGEST_TOTAL

    @property
    def is_late(self) -> bool:
        """Whether no further file is read."""
        return not self._deadline.left

    def refuses(self, size: int) -> str:
        """Returns the reason why a further file is not kept; empty, and counts it, if it is."""
        if size > LARGEST_FILE:
            return f"it has more than {LARGEST_FILE >> 20} MB"
        if not self._files or size > self._bytes:
            return f"the changed files have more than {MOST_FILES:,} files or {LARGEST_TOTAL >> 20} MB"
        self._files -= 1
        self._bytes -= size
        return ""


class WorkingTree:
    """The working tree of a repository or of a submodule.

    Args:
        repository: the repository.
        git: runs git on it.
        commit: the commit to compare with; empty before the first.
        budget: counts the files that are kept.
        store: the content of changed files is kept there; None to only compare.
        sha256: the names of objects are SHA-256.
        prefix: begins the paths in the results; ends with a slash, or is empty.
        home: the state home.

    Attributes:
        submodules: the commits of submodules by path, without the prefix, as the commit has them.
        diff: the diff of the tracked files.
        notes: facts for the user.
        latest: the paths and the times of the last change of the changed files, without the prefix.
    """

    def __init__(
        self,
        repository: Repository,
        git: Git,
        commit: str,
        budget: Budget,
        store: Store | None = None,
        *,
        sha256: bool = False,
        prefix: str = "",
        home: str = "",
    ) -> None:
        self._repository, self._git, self._store, self._prefix = repository, git, store, prefix
        self._files, self._budget = TreeFiles(repository.top, sha256=sha256), budget
        self._base = commit or EMPTY_TREES[sha256]
        self._home = home
        self._converts = False
        self.submodules: dict[str, str] = {}
        self.diff = b""
        self.notes: list[str] = []
        self.latest: dict[str, float] = {}

    def compare(self, *, converts: bool) -> list[File]:
        """Returns the changed and untracked files, sorted by path.

        Args:
            converts: git may convert contents, so that files which are unchanged for git are read too.

        Raises:
            GitError: git failed.
            OSError: a content cannot be written.
        """
        index, flagged = self._index()
        before, changed = self._changed()
        self.submodules = self._expected(index)
        untracked = self._untracked()
        chosen = Selection(self._repository.top, untracked)
        self.notes += [chosen.note] if chosen.note else []
        found: dict[str, File | None] = {}
        self._converts = converts or self._has_attributes(index)
        for path in changed:
            if path in index:
                found[path] = self._compare(path, before.get(path), chosen)
            else:  # after `git rm --cached`, the file may be left, untracked or ignored
                found[path] = File(path, DELETED)
        for path in flagged:
            if path not in found and path not in self.submodules:
                found[path] = self._compare(path, index[path], chosen)
        if self._converts:
            for path in self._converted(index, found):
                found[path] = self._compare(path, index[path], chosen, CONVERTED)
        for path in untracked:
            found[path] = self._compare(path, None, chosen, UNTRACKED)
        self._make_diff([path for path in changed if _has_diff(found.get(path), chosen)])
        prefix = self._prefix
        return [
            file._replace(path=prefix + file.path) for _, file in sorted(found.items()) if file is not None
        ]

    def is_changed(self) -> bool:
        """Returns True if a tracked file differs from the commit; keeps nothing.

        Raises:
            GitError: git failed.
        """
        before, changed = self._changed()
        for path in changed:
            found = self._files.read(path)
            if before.get(path) != (found and (found.mode, found.name)):
                return True
        return False

    # --- git ------------------------------------------------------------------------------------------

    def _index(self) -> tuple[dict[str, Known], list[str]]:
        """Returns the entries of the index, and the paths of those whose files git does not read."""
        entries, flagged = {}, []
        for line in self._lines("ls-files", "-s", "-v", "-z"):
            head, _, path = line.partition("\t")
            tag, mode, name, _ = head.split(" ")
            entries[path] = Known(int(mode, 8), name)
            if tag == "S" or tag.islower():
                flagged.append(path)
        return entries, flagged

    def _changed(self) -> tuple[dict[str, Known], list[str]]:
        """Returns the entries of the commit whose files may be changed, and the paths of all such files."""
        before: dict[str, Known] = {}
        changed: dict[str, None] = {}  # an unmerged path is listed twice
        options = ("--raw", "-z", "--no-renames", "--no-abbrev", "--ignore-submodules=all")
        lines = self._lines("diff-index", *options, self._base)
        for head, path in zip(lines, lines, strict=True):
            mode, _, name, *_ = head.removeprefix(":").split(" ")
            changed[path] = None
            if int(mode, 8):
                before[path] = Known(int(mode, 8), name)
        return before, list(changed)

    def _expected(self, index: Mapping[str, Known]) -> dict[str, str]:
        """Returns the commit of each submodule in the commit; empty if it is new."""
        paths = [path for path, known in index.items() if known.mode == GITLINK]
        expected = dict.fromkeys(paths, "")
        if paths and self._base not in EMPTY_TREES.values():
            for line in self._lines("ls-tree", "-r", "-z", "--full-tree", self._base, "--", *paths):
                head, _, path = line.partition("\t")
                expected[path] = head.split(" ")[2]
        return expected

    def _untracked(self) -> list[str]:
        paths = list(self._lines("ls-files", "--others", "--exclude-standard", "-z"))
        nested = [path for path in paths if path.endswith("/")]
        self.notes += [f"{self._prefix}{path} is a separate repository: left out" for path in nested[:10]]
        home = os.path.relpath(self._home, self._repository.top) + "/"
        # records and logs of jobs, which change all the time, do not belong to it
        return [path for path in paths if not path.endswith("/") and not path.startswith(home)]

    def ignored(self) -> list[str]:
        """Returns the files and folders that git ignores, without generated ones; not all of many.

        Raises:
            GitError: git failed.
        """
        options = ("--others", "--ignored", "--exclude-standard", "--directory", "-z")
        paths = (path for path in self._lines("ls-files", *options) if not is_built_in(_name(path)))
        return [self._prefix + path for path in islice(paths, MOST_IGNORED)]

    def _lines(self, *arguments: str) -> Iterator[str]:
        """Returns the items of an output that are separated by zero bytes."""
        output = self._git.run(*arguments)
        return (os.fsdecode(item) for item in output.split(b"\0") if item)

    def _make_diff(self, paths: list[str]) -> None:
        """Adds the diff of tracked files, unless it is too large."""
        parts, size = [], 0
        for start in range(0, len(paths), 500):
            some = [os.fsencode(path) for path in paths[start : start + 500]]
            prefixes = (f"--src-prefix=a/{self._prefix}", f"--dst-prefix=b/{self._prefix}")
            options = (
                "--binary",
                "--full-index",
                "--no-renames",
                "--no-color",
                "--no-ext-diff",
                "--no-textconv",
            )
            try:
                parts.append(
                    self._git.run(
                        "diff-index",
                        "-p",
                        *options,
                        *prefixes,
                        "--ignore-submodules=all",
                        self._base,
                        "--",
                        *some,
                        limit=LARGEST_DIFF - size,
                    )
                )
            except GitError as error:
                self.notes.append(f"the diff is not kept: {error}")
                return
            size += len(parts[-1])
        self.diff = b"".join(parts)

    def _has_attributes(self, index: Iterable[str]) -> bool:
        """Returns True if a file of attributes may request the conversion of contents."""
        for path in index:
            if path == ".gitattributes" or path.endswith("/.gitattributes"):
                try:
                    found = self._files.read(path)
                except OSError:
                    continue
                if found is not None and found.content is not None and re.search(_CONVERSIONS, found.content):
                    return True
        return False

    def _converted(self, index: dict[str, Known], found: dict[str, File | None]) -> Iterator[str]:
        """Yields the paths of files that are unchanged for git, but have other bytes than the commit."""
        left = LARGEST_READ
        for path, known in index.items():
            if path in found or known.mode == GITLINK:
                continue
            try:
                read = self._files.read(path)
            except OSError:
                continue
            left -= 0 if read is None else read.size
            if left < 0 or self._budget.is_late:
                self.notes.append("not all files with converted line ends were found: the tree is too large")
                return
            if read is None or (read.mode, read.name) != known:
                yield path

    # --- files ----------------------------------------------------------------------------------------

    def _compare(self, path: str, known: Known | None, chosen: Selection, change: str = "") -> File | None:
        """Returns the change of a file, and keeps its content; None if it is unchanged."""
        unread = File(path, change or MODIFIED)
        if self._budget.is_late:
            return unread._replace(omitted="reading the files took too long")
        try:
            found = self._files.read(path, whole=change != UNTRACKED)
        except OSError as error:
            return unread._replace(omitted=f"it cannot be read: {error.strerror}")
        if found is None:
            if known is None or change == UNTRACKED:
                return None
            return File(path, DELETED)
        if known == (found.mode, found.name):
            return None
        self.latest[path] = found.changed_at
        file = File(path, change or (ADDED if known is None else MODIFIED), found.mode, found.size)
        if self._converts and known is not None and known.mode == found.mode:
            file = self._as_converted(file, known, found)
        if file.omitted:
            return file
        return self._keep(file, found, chosen)

    def _keep(self, file: File, found: Found, chosen: Selection) -> File:
        """Returns the change of a file with the digest of its kept content, or why it is not kept."""
        why = chosen.reason_against(file.path, tracked=file.change != UNTRACKED)
        why = why or self._budget.refuses(found.size)
        if why or found.content is None:
            return file._replace(omitted=why)
        why = chosen.reason_against_content(file.path, found.content)
        if why:
            return file._replace(omitted=why)
        digest = found.digest
        if self._store is not None:
            digest = self._store.keep(found.content)
        return file._replace(digest=digest)

    def _as_converted(self, file: File, known: Known, found: Found) -> File:
        """Returns the change of a file, which may have other bytes only because git converts it."""
        if self._is_in_lfs(known, found.digest):
            return file._replace(change=CONVERTED, digest=found.digest, omitted="Git LFS has it")
        content = found.content
        if content is not None and self._files.name(content.replace(b"\r\n", b"\n")) == known.name:
            return file._replace(change=CONVERTED)
        return file

    def _is_in_lfs(self, known: Known, digest: str) -> bool:
        """Returns True if the commit has a pointer to a content that Git LFS has."""
        if not lfs_file(self._repository.objects, digest).is_file():
            return False
        try:
            content = self._git.run("cat-file", "blob", known.name, limit=_LARGEST_POINTER)
        except GitError:
            return False
        pointer = re.match(_POINTER, content)
        return pointer is not None and pointer[1].decode() == digest


EMPTY_TREES = {
    False: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    True: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""The name of the tree without files, which git knows in each repository; by whether it is a SHA-256."""


def _has_diff(file: File | None, chosen: Selection) -> bool:
    """Returns True if a file is part of the diff: its content is kept, or was deleted and may be kept."""
    if file is None or file.change == CONVERTED:
        return False
    return bool(file.digest) or (
        file.change == DELETED and not chosen.reason_against(file.path, tracked=True)
    )


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
