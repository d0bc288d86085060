"""Compare the recorded source trees of two applications, as far as both are on record."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchx.errors import TorchxError
from torchx.provenance.git import Deadline, Git, GitError
from torchx.provenance.model import DELETED
from torchx.provenance.repository import Repository

if TYPE_CHECKING:
    from torchx.provenance.model import File, Source
    from torchx.runner.api import Runner

LARGEST = 1 << 20
"""Maximum bytes of a file whose lines are compared."""

MOST_FILES = 500
"""Maximum number of files whose lines are compared."""

PATIENCE = 20.0
"""Seconds that git may take."""


class TreeDiff(NamedTuple):
    """The differences of two trees.

    Attributes:
        text: a unified diff.
        missing: the parts that could not be compared, one sentence each.
    """

    text: str
    missing: list[str]


class UnreadableError(Exception):
    """The content of a file is not on record, and its commit cannot be read; the text says why."""


class Tree:
    """The recorded source of an application.

    Args:
        runner: reads the recorded files.
        handle: the application.
        source: its source.
    """

    def __init__(self, runner: Runner, handle: str, source: Source) -> None:
        self._runner, self._handle = runner, handle
        self.source = source
        self.changed: Mapping[str, File] = {file.path: file for file in source.files}

    def content(self, path: str) -> bytes | None:
        """Returns the content of a file, or None if the tree does not have it.

        Raises:
            UnreadableError: it is not on record.
        """
        file = self.changed.get(path)
        if file is None:
            return self._committed(path)
        if file.change == DELETED:
            return None
        try:
            return self._runner.source_file(self._handle, file)
        except (TorchxError, OSError) as error:
            raise UnreadableError(str(error)) from error

    def _committed(self, path: str) -> bytes | None:
        commit, objects = self.source.commit, self.source.objects
        for each in self.source.submodules:
            if path.startswith(f"{each.path}/"):
                commit, objects, path = each.commit, each.objects, path[len(each.path) + 1 :]
        if not commit or not _git([objects], commit, "ls-tree", "-z", commit, "--", path):
            return None
        return _git([objects], commit, "cat-file", "blob", f"{commit}:{path}")


def tree_diff(a: Tree, b: Tree) -> TreeDiff:
    """Returns the differences of two trees, and the reasons if the comparison is incomplete."""
    missing: list[str] = []
    paths = {*a.changed, *b.changed}
    try:
        paths |= set(_between(a.source, b.source))
    except UnreadableError as error:
        missing.append(f"the commits are not compared: {error}")
    for which, tree in (("first", a), ("second", b)):
        if not tree.source.complete:
            missing.append(f"of the {which}, only the commit is on record")
    chosen = sorted(paths)
    if len(chosen) > MOST_FILES:
        missing.append(f"{len(chosen) - MOST_FILES} more files differ, or may differ")
    parts: list[str] = []
    for path in chosen[:MOST_FILES]:
        try:
            parts += _file_diff(path, a.content(path), b.content(path))
        except UnreadableError as error:
            missing.append(f"{path} is not compared: {error}")
    return TreeDiff("".join(parts), missing)


def _file_diff(path: str, a: bytes | None, b: bytes | None) -> Iterator[str]:
    if a == b:
        return
    names = ("/dev/null" if a is None else f"a/{path}", "/dev/null" if b is None else f"b/{path}")
    one, other = a or b"", b or b""
    if b"\0" in one + other or len(one) > LARGEST or len(other) > LARGEST:
        yield f"Files {names[0]} and {names[1]} differ ({len(one):,} and {len(other):,} bytes)\n"
        return
    for line in difflib.unified_diff(_lines(one), _lines(other), *names, lineterm=""):
        yield f"{line}\n"


def _lines(content: bytes) -> list[str]:
    text = content.decode("utf-8", "backslashreplace")
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _between(a: Source, b: Source) -> Iterator[str]:
    """Yields the paths of files that differ between two commits."""
    if a.commit == b.commit:
        return
    if not a.commit or not b.commit:
        there = a if a.commit else b
        output = _git([there.objects], there.commit, "ls-tree", "-r", "-z", "--name-only", there.commit)
    else:
        options = ("-r", "-z", "--no-renames", "--name-only")
        output = _git([a.objects, b.objects], a.commit, "diff-tree", *options, a.commit, b.commit)
    yield from (os.fsdecode(path) for path in output.split(b"\0") if path)


def _git(objects: Sequence[str], commit: str, *arguments: str) -> bytes:
    """Runs git on folders with objects, with no setting of their repositories, and returns its output.

    Args:
        objects: the folders.
        commit: one of their commits.
        arguments: the arguments of git.

    Raises:
        UnreadableError: git fails, is not installed, or takes too long.
    """
    if not all(folder and Path(folder).is_dir() for folder in objects):
        raise UnreadableError("its repository is not on this machine")
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "git"
        repository = Repository(folder, str(own), str(Path(objects[0]).parent))
        others = os.pathsep.join(objects[1:])
        try:
            git = Git(repository, own, Deadline(PATIENCE), sha256=len(commit) == 64)
            return git.run(*arguments, GIT_ALTERNATE_OBJECT_DIRECTORIES=others)
        except (OSError, GitError) as error:
            raise UnreadableError(str(error)) from error
