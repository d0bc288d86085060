"""Workspaces: what the text says, and what is really copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.errors import StateError, UsageError
from torchx.specs import Workspace


@pytest.mark.parametrize(
    ("text", "projects"),
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ("src", {"src": ""}),
        ("~/src/app", {"~/src/app": ""}),
        ("~", {"~": ""}),
        ("memory://torchx-workspace/", {"memory://torchx-workspace/": ""}),
        ("a: b", {"a": "b"}),
        ("a: b\nc: null", {"a": "b", "c": ""}),
        ('{"~/src/lib": "lib", ./app: ""}', {"~/src/lib": "lib", "./app": ""}),
    ],
)
def test_a_text_is_one_path_or_a_mapping(text: str | None, projects: dict[str, str]) -> None:
    assert Workspace.from_str(text) == Workspace(projects)


@pytest.mark.parametrize("text", ["- a", "1", "a: 1", "a: [b]", "{a: b", "1: b"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="workspace `"):
        Workspace.from_str(text)


def test_one_project_at_the_root() -> None:
    assert Workspace({"a": ""}).is_unmapped_single_project()
    assert not Workspace({"a": "b"}).is_unmapped_single_project()
    assert not Workspace({"a": "", "b": ""}).is_unmapped_single_project()
    assert not Workspace({}).is_unmapped_single_project()


def test_empty_one_is_false_and_any_is_described_briefly() -> None:
    assert not Workspace({})
    assert Workspace({"a": ""})
    assert str(Workspace({"a": "", "b": "c"})) == "a;b:c"


def test_projects_are_copied_to_their_places(tmp_path: Path) -> None:
    lib, app, out = tmp_path / "lib", tmp_path / "app", tmp_path / "out"
    (lib / "deep").mkdir(parents=True)
    (lib / "deep" / "a.py").write_text("a")
    app.mkdir()
    (app / "main.py").write_text("main")
    (app / "main.py").chmod(0o755)
    (app / "link").symlink_to("main.py")
    (tmp_path / "one.txt").write_text("1")
    projects = {str(app): "", str(lib): "vendor/lib", str(tmp_path / "one.txt"): "data"}
    Workspace(projects).merge_into(out)
    files = {str(p.relative_to(out)) for p in out.rglob("*") if not p.is_dir()}
    assert files == {"main.py", "link", "vendor/lib/deep/a.py", "data/one.txt"}
    assert (out / "link").readlink() == Path("main.py")
    assert (out / "main.py").stat().st_mode & 0o777 == 0o755


def test_later_projects_win(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same").write_text(name)
    out = tmp_path / "out"
    out.mkdir()
    (out / "kept").write_text("kept")
    Workspace({str(tmp_path / "a"): "", str(tmp_path / "b"): ""}).merge_into(str(out))
    assert ((out / "same").read_text(), (out / "kept").read_text()) == ("b", "kept")


def test_a_copy_never_goes_into_itself(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("main")
    Workspace({str(tmp_path): ""}).merge_into(tmp_path / "job")
    assert sorted(p.name for p in (tmp_path / "job").iterdir()) == ["main.py"]


def test_the_home_folder_is_meant_by_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x").touch()
    Workspace({"~/src": ""}).merge_into(tmp_path / "out")
    assert (tmp_path / "out" / "x").exists()


@pytest.mark.parametrize("target", ["../x", "a/../../x", "/etc"])
def test_no_target_lies_outside(tmp_path: Path, target: str) -> None:
    with pytest.raises(UsageError, match="outside the job's root"):
        Workspace({str(tmp_path): target}).merge_into(tmp_path / "out")


def test_a_project_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="nope` cannot be copied"):
        Workspace({str(tmp_path / "nope"): ""}).merge_into(tmp_path / "out")
