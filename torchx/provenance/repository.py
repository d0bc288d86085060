"""Git repositories as files: their folders, HEAD and references, read without running git."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from torchx.machine import files

LARGEST_REFS = 1 << 20
"""Maximum bytes of the packed references that are read in the command; beyond, git reads them later."""

_COMMIT = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_HEADS = "refs/heads/"


class Repository(NamedTuple):
    """A working tree and its repository.

    Attributes:
        top: the root of the working tree.
        git_dir: the repository's own files: HEAD, the index.
        common_dir: the files that all its working trees share: references, objects.
    """

    top: str
    git_dir: str
    common_dir: str

    @property
    def objects(self) -> str:
        """The folder with its objects."""
        return f"{self.common_dir}/objects"


class Head(NamedTuple):
    """The state of HEAD.

    Attributes:
        branch: the branch; empty if none is checked out.
        commit: the commit; empty before the first; None if git must be run to find it.
    """

    branch: str = ""
    commit: str | None = None


def is_commit(text: str) -> bool:
    """Returns True if a text is the whole name of a commit."""
    return re.fullmatch(_COMMIT, text) is not None


def find(folder: str) -> Repository | None:
    """Returns the repository that contains a folder, None without one."""
    at = os.path.realpath(folder)
    while True:
        found = at_root(at)
        parent = os.path.dirname(at)  # noqa: PTH120  # paths of any bytes
        if found is not None or parent == at:
            return found
        at = parent


def at_root(top: str) -> Repository | None:
    """Returns the repository of a working tree, None if the folder is not the root of one."""
    git_dir = f"{top}/.git"
    link = _first_line(git_dir)
    if link is not None:  # a submodule or an additional working tree
        if not link.startswith("gitdir: "):
            return None
        git_dir = os.path.normpath(os.path.join(top, link.removeprefix("gitdir: ")))  # noqa: PTH118
    if not os.path.isfile(f"{git_dir}/HEAD"):  # noqa: PTH113
        return None
    common = _first_line(f"{git_dir}/commondir")
    common_dir = git_dir if common is None else os.path.normpath(os.path.join(git_dir, common))  # noqa: PTH118
    return Repository(top, git_dir, common_dir)


def head(repository: Repository) -> Head:
    """Returns the branch and the commit that are checked out; reads a few small files."""
    text = _first_line(f"{repository.git_dir}/HEAD") or ""
    if is_commit(text):
        return Head("", text)
    name = text.removeprefix("ref: ").strip()
    if not text.startswith("ref: refs/") or ".." in name or name == "refs/heads/.invalid":  # a reftable
        return Head()
    branch = name.removeprefix(_HEADS)
    commit = _first_line(f"{repository.common_dir}/{name}")
    if commit is None:
        return Head(branch, _packed(repository, name))
    return Head(branch, commit if is_commit(commit) else None)


def lfs_file(objects: str, digest: str) -> Path:
    """Returns the file of Git LFS with a content, which may not exist.

    Args:
        objects: the folder with the objects of the repository.
        digest: the SHA-256 of the content.
    """
    return Path(objects).parent / "lfs" / "objects" / digest[:2] / digest[2:4] / digest


def _packed(repository: Repository, name: str) -> str | None:
    """Returns the commit of a reference in the list of references; empty if it is not in it."""
    try:
        packed = files.read_file(f"{repository.common_dir}/packed-refs", LARGEST_REFS, own=False, follow=True)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):  # also a folder with a zero byte, named by a damaged repository
        return None
    wanted = b" " + os.fsencode(name)
    line = next((line for line in packed.split(b"\n") if line.endswith(wanted)), b"")
    return line[: -len(wanted)].decode("ascii", "replace")


def _first_line(path: str) -> str | None:
    """Returns the first line of a small file, None if it does not exist or cannot be read."""
    try:
        return os.fsdecode(files.read_file(path, 1 << 16, own=False, follow=True)).split("\n")[0].rstrip("\r")
    except (OSError, ValueError):
        return None
