"""Trees: what comes along, what stays behind, and that equal trees are known as such."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import uuid
from fnmatch import fnmatchcase
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx.errors import StateError, UsageError
from torchx.specs.workspace import Workspace
from torchx.workspace import walk_workspace
from torchx.workspace.ignore import Rules, parse
from torchx.workspace.tree import Tree, scan


def look(folder: Path | str, **options: int) -> Tree:
    return scan(Workspace({str(folder): ""}), **options)


def paths(tree: Tree) -> list[str]:
    return [entry.path for entry in tree.entries if entry.kind != "dir"]


def put(folder: Path, *files: str) -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(f"in {file}")
    return folder


def test_secrets_and_clutter_stay_unless_requested(tmp_path: Path) -> None:
    put(
        tmp_path,
        "a.py",
        ".env",
        ".env.local",
        ".git/config",
        "x/__pycache__/a.pyc",
        ".ssh/id",
        "env/ok",
        ".envrc",
    )
    assert paths(look(tmp_path)) == [".envrc", "a.py", "env/ok"]
    (tmp_path / ".torchxignore").write_text("!.env\n")
    assert paths(look(tmp_path)) == [".env", ".envrc", ".torchxignore", "a.py", "env/ok"]


def test_ignore_files_count_in_their_order(tmp_path: Path) -> None:
    put(tmp_path, "a.log", "keep.log", "deep/b.log", "data/big", "data/small", "top.txt", "sub/top.txt")
    (tmp_path / ".dockerignore").write_text("# a comment\n*.log\ndata\n!data/small\n/top.txt\n")
    assert set(paths(look(tmp_path))) == {".dockerignore", "deep/b.log", "data/small", "sub/top.txt"}
    (tmp_path / ".torchxignore").write_text("!keep.log\n*.log\n!keep.log\n")
    assert set(paths(look(tmp_path))) == {
        ".dockerignore", ".torchxignore", "keep.log", "data/small", "sub/top.txt",
    }  # fmt: skip


def test_a_line_that_makes_no_sense_is_named(tmp_path: Path) -> None:
    put(tmp_path, "a").joinpath(".dockerignore").write_text("ok\n[\n")
    with pytest.raises(UsageError, match="line 2"):
        look(tmp_path)


def test_equal_trees_have_equal_digests_and_others_have_not(tmp_path: Path) -> None:
    def make(name: str) -> Path:
        folder = put(tmp_path / name, "a.py", "ü/ß.txt")
        (folder / "empty").mkdir()
        (folder / "link").symlink_to("a.py")
        return folder

    one, two = make("one"), make("two")
    os.utime(two / "a.py", (1, 1))
    first = look(one).digest
    assert first == look(two).digest
    (two / "a.py").chmod(0o755)
    seen = {first, look(two).digest}
    (two / "empty").rmdir()
    seen.add(look(two).digest)
    (two / "link").unlink()
    seen.add(look(two).digest)
    (two / "a.py").write_text("another")
    assert len({*seen, look(two).digest}) == 5


def test_a_copy_is_the_tree(tmp_path: Path) -> None:
    folder = put(tmp_path / "code", "a.py", "x/run.sh")
    (folder / "x" / "run.sh").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("x/run.sh")
    tree = look(folder)
    tree.write_to(tmp_path / "copy")
    assert look(tmp_path / "copy").digest == tree.digest
    assert os.access(tmp_path / "copy" / "link", os.X_OK)


def test_an_archive_is_the_same_each_time(tmp_path: Path) -> None:
    folder = put(tmp_path / "code", "b", "a/ä")
    packed = []
    for _ in range(2):
        held = io.BytesIO()
        look(folder).write_tar(held)
        packed.append(hashlib.sha256(held.getvalue()).hexdigest())
        os.utime(folder / "b", (5, 5))
    assert packed[0] == packed[1]
    with tarfile.open(fileobj=io.BytesIO(held.getvalue())) as tar:
        assert tar.getnames() == ["a", "a/ä", "b"]


def test_several_projects_have_folders_and_later_ones_win(tmp_path: Path) -> None:
    lib, app = put(tmp_path / "lib", "both", "only_lib"), put(tmp_path / "app", "both")
    tree = scan(Workspace({str(lib): "", str(app): "", str(lib / "only_lib"): "deep/in"}))
    assert paths(tree) == ["both", "deep/in/only_lib", "only_lib"]
    found = tree.find("both")
    assert found is not None
    assert tree.read(found) == b"in both"
    with pytest.raises(UsageError, match="outside"):
        scan(Workspace({str(lib): "../x"}))


def test_any_file_system_will_do(tmp_path: Path) -> None:
    where = f"/{uuid.uuid4()}"
    memory = fsspec.filesystem("memory")
    memory.pipe({f"{where}/a.py": b"in a.py", f"{where}/x/b.py": b"in x/b.py", f"{where}/.env": b"no"})
    tree = look(f"memory:/{where}")
    assert paths(tree) == ["a.py", "x/b.py"]
    assert tree.digest == look(put(tmp_path, "a.py", "x/b.py")).digest
    memory.rm(where, recursive=True)


def test_too_much_is_refused_with_what_makes_it_so(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "data/x")
    with (tmp_path / "data" / "big").open("wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(UsageError, match="data") as caught:
        look(tmp_path, limit_mb=3)
    assert ".torchxignore" in str(caught.value.hint)


def test_special_files_are_excluded_and_outward_links_reported(tmp_path: Path) -> None:
    folder = put(tmp_path / "code", "a")
    os.mkfifo(folder / "pipe")
    (folder / "out").symlink_to("/etc/hostname")
    tree = look(folder)
    assert paths(tree) == ["a", "out"]
    assert any("out" in note for note in tree.notes)
    assert any("pipe" in note for note in tree.notes)


def test_a_file_that_changes_meanwhile_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "a")
    tree = look(tmp_path)
    assert tree.digest
    (tmp_path / "a").write_text("of a")  # as long as before
    with pytest.raises(StateError, match="changed while it was read"):
        tree.read(tree.entries[0])


def test_what_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        look(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="nosuch"):
        look("nosuch://bucket/x")


def test_a_walk_leaves_out_what_the_file_says(tmp_path: Path) -> None:
    put(tmp_path, "a.py", "b.log", "x/c.log", "x/d.py").joinpath(".torchxignore").write_text("*.log\n")
    found = [(f.removeprefix(str(tmp_path)), dirs, sorted(files)) for f, dirs, files in
             walk_workspace(fsspec.filesystem("file"), str(tmp_path))]  # fmt: skip
    assert found == [("", ["x"], [".torchxignore", "a.py"]), ("/x", [], ["d.py"])]


# --- against a slow and obvious reading ---------------------------------------------------------------


def fits(pattern: list[str], path: list[str]) -> bool:
    """Whether a pattern of `.dockerignore` means a path, part by part."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(fits(pattern[1:], path[n:]) for n in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and fits(pattern[1:], path[1:])


def stays(lines: list[str], path: str) -> bool:
    """As Docker does: folder by folder; a line that would change nothing is not looked at."""
    parts, out, before = path.split("/"), False, [False] * len(lines)
    for n in range(1, len(parts) + 1):
        out, now = False, []
        for line, met in zip(lines, before, strict=True):
            takes, pattern = line.startswith("!"), line.lstrip("!").split("/")
            now.append(met or (takes == out and fits(pattern, parts[:n])))
            out = not takes if now[-1] else out
        before = now
        inside = "/".join(parts[:n]) + "/"
        if out and not any(f"{line[1:]}/".startswith(inside) for line in lines if line.startswith("!")):
            return True  # the folder is not entered
    return out


_names = st.sampled_from(["a", "b", "ab"])
_parts = st.sampled_from(["a", "b", "ab", "*", "a*", "?", "**"])
_patterns = st.lists(_parts, min_size=1, max_size=3).filter(lambda p: p[-1] != "**").map("/".join)
_lines = st.lists(st.tuples(st.sampled_from(["", "!"]), _patterns).map("".join), max_size=5)


@settings(max_examples=300)
@given(_lines, st.lists(_names, min_size=1, max_size=4).map("/".join))
def test_rules_are_those_of_docker(lines: list[str], path: str) -> None:
    rules = Rules(parse("\n".join(lines), ".dockerignore"), unfiltered=True)
    state, why = rules.top, None
    parts = path.split("/")
    for n, name in enumerate(parts, 1):
        why, state = rules.match("/".join(parts[:n]), name, state, is_dir=n < len(parts))
    assert (why is not None) == stays(lines, path)
