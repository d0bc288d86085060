"""Tests of the recorded source: special repositories, secrets, hostile settings, and its restoration."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from gits import again, commit, git, record, repository, tree

from torchx.errors import StateError
from torchx.provenance import changes, tree_files
from torchx.provenance import git as git_program
from torchx.provenance import repository as repositories
from torchx.provenance.git import Deadline
from torchx.provenance.model import CONVERTED, DELETED, Provenance, Source, Submodule
from torchx.provenance.restore import restore
from torchx.provenance.source import Reader
from torchx.provenance.store import Store
from torchx.provenance.submission import look
from torchx.provenance.surroundings import read_python

# --- what is checked out ----------------------------------------------------------------------------


def test_the_head_is_read_as_git_reads_it(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / "sub").mkdir()
    found = repositories.find(str(folder / "sub"))
    assert found is not None
    name = git(folder, "rev-parse", "HEAD")
    assert repositories.head(found) == ("main", name)
    git(folder, "pack-refs", "--all")
    assert repositories.head(found) == ("main", name)
    git(folder, "checkout", "-q", "--detach")
    assert repositories.head(found) == ("", name)
    git(folder, "checkout", "-q", "--orphan", "new/branch")
    assert repositories.head(found) == ("new/branch", "")


def test_long_lists_of_references_are_left_to_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "pack-refs", "--all")
    monkeypatch.setattr(repositories, "LARGEST_REFS", 10)
    found = repositories.find(str(folder))
    assert found is not None
    assert repositories.head(found) == ("main", None)
    provenance = record(folder, Store(tmp_path / "p"))
    assert provenance.source is not None
    assert provenance.source.commit == git(folder, "rev-parse", "HEAD")


def test_without_a_repository_there_is_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert look().repository is None
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert look().repository is None
    (tmp_path / ".git").write_text("\xff\0no link")
    assert look().repository is None


def test_without_git_the_commit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r")
    name = git(folder, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path))
    source = record(folder, Store(tmp_path / "p")).source
    assert source is not None
    assert source.commit == name
    assert not source.complete
    assert source.notes == ("the changed files are not known: git is not installed",)


# --- special repositories ---------------------------------------------------------------------------


def test_before_the_first_commit_all_files_are_changes(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a").write_text("a")
    (folder / "staged").write_text("s")
    git(folder, "add", "staged")
    restored, notes, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert notes == []
    assert provenance.source is not None
    assert (provenance.source.commit, provenance.source.branch) == ("", "main")


def test_names_of_objects_may_be_sha256(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    (folder / "a").write_text("a")
    commit(folder)
    (folder / "b").write_text("b")
    restored, _, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert provenance.source is not None
    assert [file.path for file in provenance.source.files] == ["b"]


def test_an_additional_working_tree_is_restored(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    folder = tmp_path / "r"
    git(main, "worktree", "add", "-q", "-b", "side", str(folder))
    (folder / "a.txt").write_text("changed\n")
    restored, _, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert provenance.source is not None
    assert provenance.source.branch == "side"


def test_submodules_are_restored_with_their_own_commits_and_changes(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    folder = repository(tmp_path / "r")
    git(folder, "submodule", "add", "-q", str(inner), "libs/inner")
    git(folder, "submodule", "add", "-q", str(inner), "empty")
    commit(folder)
    git(folder, "submodule", "deinit", "-q", "-f", "empty")
    expected = git(folder / "libs/inner", "rev-parse", "HEAD")
    (folder / "libs/inner/more").write_text("more")
    commit(folder / "libs/inner")
    (folder / "libs/inner/a.txt").write_text("changed in the submodule\n")
    (folder / "libs/inner/new").write_text("new")
    restored, notes, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert notes == ["submodule empty is empty, as it was"]
    source = provenance.source
    assert source is not None
    assert source.dirty
    moved = git(folder / "libs/inner", "rev-parse", "HEAD")
    objects = str(folder / ".git/modules/libs/inner/objects")
    assert Submodule("libs/inner", moved, objects, expected) in source.submodules
    assert {file.path for file in source.files} == {"libs/inner/a.txt", "libs/inner/new"}
    assert b"b/libs/inner/a.txt" in (Store(tmp_path / "provenance").diff() or b"")


def test_a_shallow_clone_is_restored_and_noted(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin")
    (origin / "a.txt").write_text("second\n")
    commit(origin)
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "r")
    restored, notes, _ = again(tmp_path / "r", tmp_path)
    assert tree(restored) == tree(tmp_path / "r")
    assert notes == ["the repository is shallow: it has only part of the history"]


def test_git_lfs_files_are_restored_if_content_is_here(tmp_path: Path) -> None:
    content = b"large content\n"
    digest = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    folder = repository(tmp_path / "r", **{".gitattributes": "*.bin filter=lfs -text\n", "x.bin": pointer})
    # as `git lfs checkout` leaves it: the content in the tree, unchanged for git
    git(folder, "config", "filter.lfs.clean", f"printf {pointer!r}".replace("'", '"'))
    (folder / "x.bin").write_bytes(content)
    git(folder, "add", "x.bin")
    assert git(folder, "status", "--porcelain") == ""
    stored = folder / ".git/lfs/objects" / digest[:2] / digest[2:4] / digest
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    restored, notes, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert notes == []
    source = provenance.source
    assert source is not None
    assert not source.dirty
    assert [(file.path, file.change) for file in source.files] == [("x.bin", CONVERTED)]
    assert not Store(tmp_path / "provenance").content_file(digest).exists()
    stored.unlink()
    assert restore(provenance, Store(tmp_path / "provenance"), tmp_path / "other") == [
        "x.bin is not restored: Git LFS has it"
    ]
    assert (tmp_path / "other/x.bin").read_text() == pointer


def test_more_changed_files_need_no_more_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}.txt" for number in range(20)]
    folder = repository(tmp_path / "r", **{".gitattributes": "*.txt text\n"}, **dict.fromkeys(names, "a\n"))
    calls: list[object] = []
    run = git_program.run

    def counted(arguments: Sequence[str | bytes], *rest: Any, **options: Any) -> bytes:
        calls.append(arguments)
        return run(arguments, *rest, **options)

    monkeypatch.setattr(git_program, "run", counted)
    counts = []
    for changed in (2, 20):
        for name in names[:changed]:
            (folder / name).write_text("b\n")
        calls.clear()
        source = record(folder, Store(tmp_path / f"p{changed}")).source
        assert source is not None
        assert len(source.files) == changed
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_line_ends_that_git_converts_are_restored(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    git(folder, "config", "core.autocrlf", "true")
    (folder / "a.txt").unlink()
    git(folder, "checkout", "a.txt")
    assert (folder / "a.txt").read_bytes() == b"a\r\n"
    restored, _, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert provenance.source is not None
    assert not provenance.source.dirty


def test_files_that_git_does_not_read_are_compared(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", sparse="s", assumed="s")
    git(folder, "update-index", "--skip-worktree", "sparse")
    git(folder, "update-index", "--assume-unchanged", "assumed")
    (folder / "sparse").unlink()
    (folder / "assumed").write_text("changed")
    restored, _, provenance = again(folder, tmp_path)
    assert tree(restored) == tree(folder)
    assert provenance.source is not None
    assert provenance.source.files[1].change == DELETED


def test_a_repository_within_is_left_out(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    repository(folder / "nested")
    source = record(folder, Store(tmp_path / "p")).source
    assert source is not None
    assert source.notes == ("nested/ is a separate repository: left out",)


def test_large_files_are_named_but_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(changes, "LARGEST_FILE", 1 << 20)
    monkeypatch.setattr(tree_files, "LARGEST_FILE", 1 << 20)
    folder = repository(tmp_path / "r")
    (folder / "large").write_bytes(bytes((1 << 20) + 1))
    (folder / "a.txt").write_bytes(bytes((1 << 20) + 1))
    restored, notes, _ = again(folder, tmp_path)
    assert notes == ["a.txt, large are not restored: it has more than 1 MB"]
    assert (restored / "a.txt").read_text() == "a\n"


def test_a_change_after_the_submission_is_noticed(tmp_path: Path) -> None:

    folder = repository(tmp_path / "r")
    (folder / "a.txt").write_text("changed\n")
    (folder / "old").write_text("old")
    os.utime(folder / "old", (1, 1))
    before = (folder / "a.txt").stat().st_ctime - 1
    store = Store(tmp_path)

    reader = Reader(store, Deadline(300), "/nonexistent", before)
    source = reader.read(Source(str(folder), "0" * 40))
    assert not source.complete  # there is no such commit
    reader = Reader(store, Deadline(300), "/nonexistent", before)
    name = git(folder, "rev-parse", "HEAD")
    (folder / "more").write_text("more")
    commit(folder)
    source = reader.read(Source(str(folder), name))
    assert reader.changed_since == ["a.txt", "more", "old"]
    assert source.notes == (
        f"the commit changed during the submission, to {git(folder, 'rev-parse', 'HEAD')[:12]}",
    )


# --- restoration ------------------------------------------------------------------------------------


def test_a_commit_that_is_gone_is_an_error(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store = Store(tmp_path / "p")
    provenance = record(folder, store)
    assert provenance.source is not None
    gone = provenance._replace(source=provenance.source._replace(commit="1" * 40, remote="https://host/r"))
    with pytest.raises(StateError, match="commit 111111111111 is no longer in") as caught:
        restore(gone, store, tmp_path / "x")
    assert caught.value.hint == "fetch it there: git fetch https://host/r"


def test_without_git_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = repository(tmp_path / "r")
    store = Store(tmp_path / "p")
    provenance = record(folder, store)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StateError, match="git is not installed"):
        restore(provenance, store, tmp_path / "x")


def test_a_moved_repository_is_found_at_its_old_place(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    store = Store(tmp_path / "p")
    provenance = record(folder, store)
    assert provenance.source is not None
    moved = provenance._replace(source=provenance.source._replace(objects="/nowhere/objects"))
    assert restore(moved, store, tmp_path / "x") == []
    assert tree(tmp_path / "x") == tree(folder)


def test_a_hostile_record_writes_nothing_outside(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / "link").symlink_to(tmp_path)
    commit(folder)
    (folder / "new").write_text("new")
    store = Store(tmp_path / "p")
    provenance = record(folder, store)
    assert provenance.source is not None
    (file,) = provenance.source.files
    hostile = provenance._replace(source=provenance.source._replace(files=(file._replace(path="link/new"),)))
    with pytest.raises(StateError, match="is not a folder"):
        restore(hostile, store, tmp_path / "x")
    assert not (tmp_path / "new").exists()
    deleted = file._replace(path="link/r/a.txt", change=DELETED)
    hostile = provenance._replace(source=provenance.source._replace(files=(deleted,)))
    restore(hostile, store, tmp_path / "y")
    assert (folder / "a.txt").exists()


def test_ignored_files_are_named(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", **{".gitignore": "data\n*.pyc\n"})
    (folder / "data").mkdir()
    (folder / "data" / "x").write_text("x")
    (folder / "m.pyc").write_text("x")
    assert again(folder, tmp_path)[1] == ["data/ is not restored: git ignores it"]


def test_a_removed_application_stays_removed(tmp_path: Path) -> None:
    """A recording after the removal fails, and creates no folder."""
    folder = repository(tmp_path / "r")
    (folder / "new").write_text("new")
    store = Store(tmp_path / "job" / "p")
    begun = Source(str(folder), git(folder, "rev-parse", "HEAD"))
    source = Reader(store, Deadline(300), "/nonexistent", 0.0).read(begun)
    assert not source.complete
    with pytest.raises(OSError, match="No such file"):
        store.keep(b"content")
    with pytest.raises(OSError, match="No such file"):
        store.write(Provenance(0.0, source=source))
    assert not (tmp_path / "job").exists()


def test_damaged_repositories_are_notes(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / ".git/index").write_bytes(b"DIRC damaged")
    source = record(folder, Store(tmp_path / "p")).source
    assert source is not None
    assert not source.complete
    assert source.notes[0].startswith("the changed files are not known: git ")


def test_packages_and_editable_installs_of_python_are_listed(tmp_path: Path) -> None:

    folder = repository(tmp_path / "r")
    info = tmp_path / "site" / "pack-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pack\nVersion: 1.2\n")
    (info / "direct_url.json").write_text(f'{{"url": "file://{folder}", "dir_info": {{"editable": true}}}}')
    script = tmp_path / "program"
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/site exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    script.write_text(f"#!{python}\n")
    found = read_python(str(script), tmp_path, Deadline(300))
    assert found.origin == "program"
    assert found.packages["pack"] == "1.2"
    assert found.editable["pack"] == (str(folder), git(folder, "rev-parse", "HEAD"), False)
    (folder / "a.txt").write_text("changed\n")
    assert read_python(str(script), tmp_path, Deadline(300)).editable["pack"].dirty is True
    other = read_python("/bin/sh", tmp_path, Deadline(300))
    assert (other.origin, "pack" in other.packages) == ("launcher", False)
