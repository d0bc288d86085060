"""The unified diff of two recorded trees: `torchx diff --source`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from gits import commit, git, record, repository

from torchx.errors import StateError
from torchx.provenance.model import File, Provenance
from torchx.provenance.store import Store
from torchx_cli.diff.trees import Tree, TreeDiff, tree_diff


class Recorded:
    """What a tree needs of a runner: the contents of recorded files."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def source_file(self, app_handle: str, file: File) -> bytes:
        return self._store.content(file)


def recorded(folder: Path, place: Path) -> Any:
    """Records a folder, and returns its tree."""
    store = Store(place)
    provenance = record(folder, store)
    assert provenance.source is not None
    return Tree(Recorded(store), "local_cwd://s/a", provenance.source)  # type: ignore[arg-type]


def test_working_trees_of_one_commit(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r", **{"b.txt": "b\n", "same.txt": "same\n"})
    (folder / "a.txt").write_text("a\nmore\n")
    (folder / "same.txt").write_text("edited\n")
    a = recorded(folder, tmp_path / "one")
    (folder / "a.txt").write_text("a\n")
    (folder / "b.txt").unlink()
    (folder / "new").write_text("no end")
    b = recorded(folder, tmp_path / "two")
    text, missing = tree_diff(a, b)
    assert missing == []
    assert text.splitlines() == [
        "--- a/a.txt", "+++ b/a.txt", "@@ -1,2 +1 @@", " a", "-more",
        "--- a/b.txt", "+++ /dev/null", "@@ -1 +0,0 @@", "-b",
        "--- /dev/null", "+++ b/new", "@@ -0,0 +1 @@", "+no end", "\\ No newline at end of file",
    ]  # fmt: skip
    assert tree_diff(a, a) == TreeDiff("", [])


def test_different_commits_and_binary_files(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    a = recorded(folder, tmp_path / "one")
    (folder / "a.txt").write_text("changed\n")
    (folder / "data").write_bytes(b"\0binary")
    commit(folder)
    b = recorded(folder, tmp_path / "two")
    text, missing = tree_diff(a, b)
    assert missing == []
    assert "-a\n+changed\n" in text
    assert "Files /dev/null and b/data differ (0 and 7 bytes)\n" in text
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(folder), str(clone))
    (clone / "a.txt").write_text("of the clone\n")
    assert "+of the clone\n" in tree_diff(a, recorded(clone, tmp_path / "three")).text


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = repository(tmp_path / "r")
    (folder / "a.txt").write_text("one\n")
    a = recorded(folder, tmp_path / "one")
    (folder / "a.txt").write_text("two\n")
    (folder / "b.txt").write_text("b\n")
    commit(folder)
    (folder / "a.txt").write_text("three\n")
    b = recorded(folder, tmp_path / "two")
    shutil.rmtree(folder)
    text, missing = tree_diff(a, b)
    assert text.splitlines()[-2:] == ["-one", "+three"]
    assert missing == ["the commits are not compared: its repository is not on this machine"]
    shutil.rmtree(tmp_path / "one" / "files")
    text, missing = tree_diff(a, b)
    assert text == ""
    assert missing[1].startswith("a.txt is not compared: the recorded source")


def test_a_submodule_is_part_of_the_tree(tmp_path: Path) -> None:
    inner = repository(tmp_path / "inner")
    folder = repository(tmp_path / "r")
    git(folder, "submodule", "--quiet", "add", str(inner), "sub")
    commit(folder)
    a = recorded(folder, tmp_path / "one")
    (folder / "sub" / "a.txt").write_text("edited\n")
    text, missing = tree_diff(a, recorded(folder, tmp_path / "two"))
    assert missing == []
    assert text.splitlines() == ["--- a/sub/a.txt", "+++ b/sub/a.txt", "@@ -1 +1 @@", "-a", "+edited"]


def test_without_a_commit_all_files_are_new(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "x").write_text("x\n")
    a = recorded(folder, tmp_path / "one")
    commit(folder)
    assert tree_diff(a, recorded(folder, tmp_path / "two")) == TreeDiff("", [])
    (folder / "x").write_text("y\n")
    assert "-x\n+y\n" in tree_diff(a, recorded(folder, tmp_path / "three")).text


def test_only_what_is_recorded_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StateError):
        store.content(File("x", "modified", omitted="it is too large"))
    assert Provenance(1.0).source is None
