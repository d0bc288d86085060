"""Restores the recorded source of an application: the commit, the changed files and the untracked ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from torchx.errors import StateError
from torchx.machine import files
from torchx.printable import few
from torchx.provenance import repository as repositories
from torchx.provenance.git import Deadline, Git, GitError, run
from torchx.provenance.model import CONVERTED, DELETED, EXECUTABLE, LINK, File, Provenance, Source
from torchx.provenance.repository import Repository, lfs_file
from torchx.provenance.store import Store

LONGEST = 600.0
"""Maximum seconds of a restoration."""


def restore(provenance: Provenance, store: Store, folder: Path) -> list[str]:
    """Writes the source of an application into a new folder, and returns notes on the missing parts.

    Args:
        provenance: the record.
        store: its files.
        folder: the folder, which does not exist.

    Raises:
        StateError: no source is recorded, the commit is no longer in the repository, or a file cannot be read
            or written.
    """
    source = provenance.source
    if provenance.recording:
        raise StateError("the source is still being recorded", hint="try again in a few seconds")
    if source is None:
        reason = "it was submitted by an older version"
        if provenance.notes:
            reason = provenance.notes[0]
        raise StateError(f"no source is recorded: {reason}")
    try:
        files.make_folder(folder, exist_ok=False)
        notes = _check_out(source, folder)
        notes += _apply(source, store, folder)
    except GitError as error:
        raise StateError(f"the source cannot be restored: {error}") from error
    except OSError as error:
        raise StateError(f"{error.filename or folder} cannot be restored: {error.strerror}") from error
    if source.ignored:
        them = "them" if len(source.ignored) > 1 else "it"
        notes.append(f"{_named([*source.ignored])} not restored: git ignores {them}")
    if not source.complete:
        notes.append("the changed files are not restored: they were not recorded")
    return [*notes, *source.notes]


def _check_out(source: Source, folder: Path) -> list[str]:
    """Writes the files of the commit, and of those of the submodules; returns notes.

    Raises:
        GitError: git failed.
        StateError: the commit is not in the repository any more.
    """
    notes: list[str] = []
    deadline = Deadline(LONGEST)
    if source.commit:
        objects = _objects_with(source.commit, [source.objects, _objects_at(source.folder)], folder, deadline)
        if objects is None:
            run(["version"], deadline)  # without git, that is the reason
            raise StateError(
                f"commit {source.commit[:12]} is no longer in {source.folder}",
                hint=f"fetch it there: git fetch {source.remote}" if source.remote else None,
            )
        _write_commit(source.commit, objects, folder, folder, deadline)
    for submodule in source.submodules:
        place = folder / submodule.path
        if not submodule.commit:
            notes.append(f"submodule {submodule.path} is empty, as it was")
            continue
        found = _objects_with(submodule.commit, [submodule.objects], folder, deadline)
        if found is None:
            notes.append(f"submodule {submodule.path} is not restored: its commit is no longer there")
            continue
        _make_parents(folder, f"{submodule.path}/x")
        _write_commit(submodule.commit, found, place, folder, deadline)
    return notes


def _objects_at(top: str) -> str:
    """Returns the objects of the repository that is now at a path; empty without one."""
    repository = repositories.at_root(top)
    if repository is None:
        return ""
    return repository.objects


def _objects_with(commit: str, places: list[str], folder: Path, deadline: Deadline) -> str | None:
    """Returns the first folder of objects that has a commit, or None."""
    for objects in dict.fromkeys(places):
        if os.path.isdir(objects):  # noqa: PTH112  # a string
            with contextlib.suppress(GitError), _git(objects, folder, folder, commit, deadline) as git:
                git.run("cat-file", "-e", f"{commit}^{{tree}}")
                return objects
    return None


def _write_commit(commit: str, objects: str, place: Path, folder: Path, deadline: Deadline) -> None:
    with _git(objects, place, folder, commit, deadline) as git:
        git.run("read-tree", commit)
        git.run("checkout-index", "--all", "--force")


def _git(objects: str, place: Path, folder: Path, commit: str, deadline: Deadline) -> Git:
    own = folder.with_name(f".{folder.name}.git")
    repository = Repository(str(place), str(own), objects.removesuffix("/objects"))
    return Git(repository, own, deadline, sha256=len(commit) == 64)


def _apply(source: Source, store: Store, folder: Path) -> list[str]:
    """Removes the deleted files and writes the changed ones; returns notes on those that are missing."""
    for file in source.files:
        if file.change == DELETED:
            _remove(folder, file.path)
    missing: dict[str, list[str]] = {}
    for file in source.files:
        if file.change == DELETED:
            continue
        content: bytes | Path | None = None
        if file.change == CONVERTED and file.omitted:
            content = _from_lfs(source, file)
        elif file.digest:
            content = store.content(file)
        if content is None:
            missing.setdefault(file.omitted or "its content is not recorded", []).append(file.path)
        else:
            _write(folder, file, content)
    return [f"{_named(paths)} not restored: {why}" for why, paths in missing.items()]


def _from_lfs(source: Source, file: File) -> Path | None:
    """Returns the file in Git LFS with the content of a file, None if it is not on this machine."""
    holders = [each for each in source.submodules if file.path.startswith(f"{each.path}/")]
    if holders:
        objects = max(holders, key=lambda each: len(each.path)).objects
    else:
        objects = source.objects
    path = lfs_file(objects, file.digest)
    if path.is_file() and path.stat().st_size == file.size:
        return path
    return None


def _write(folder: Path, file: File, content: bytes | Path) -> None:
    path = folder / file.path
    _make_parents(folder, file.path)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    if file.mode == LINK:
        assert isinstance(content, bytes)
        os.symlink(content, os.fsencode(path))  # noqa: PTH211  # a target of any bytes
        return
    # those of a file that git writes
    mode = 0o777 if file.mode == EXECUTABLE else 0o666
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as opened:
        if isinstance(content, bytes):
            opened.write(content)
        else:
            with open(files.open_file(content, own=False), "rb") as stored:
                shutil.copyfileobj(stored, opened)


def _make_parents(folder: Path, path: str) -> None:
    """Creates the folders above a path; follows no link.

    Raises:
        StateError: a part of the path is not a folder.
    """
    at = folder
    for part in path.split("/")[:-1]:
        at = at / part
        try:
            at.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(at.lstat().st_mode):
                raise StateError(f"{path} cannot be restored: {at} is not a folder") from None


def _remove(folder: Path, path: str) -> None:
    """Removes a file, and the folders that are empty then; follows no link."""
    parts = path.split("/")
    above = [folder.joinpath(*parts[:depth]) for depth in range(1, len(parts))]
    if any(place.is_symlink() for place in above):
        return
    with contextlib.suppress(OSError):
        (folder / path).unlink()
        for place in reversed(above):
            place.rmdir()


def _named(paths: list[str]) -> str:
    return f"{few(paths)} {'are' if len(paths) > 1 else 'is'}"
