"""Schedulers of other packages that take workspaces as those for TorchX do."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from memory_scheduler import MemoryScheduler

from torchx.errors import UsageError
from torchx.runner import Runner
from torchx.specs import AppDef, Resource, Role, Workspace
from torchx.specs.run_options import CfgVal, runopts
from torchx.workspace import WorkspaceMixin
from torchx.workspace.dir_workspace import DirWorkspaceMixin, TmpDirWorkspaceMixin


class Builder(WorkspaceMixin[None]):
    built: list[tuple[str, str]]

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("level", type_=int, default=3, help="how hard to pack")
        return opts

    def build_workspace_and_update_role(
        self, role: Role, workspace: str | Workspace, cfg: Mapping[str, CfgVal]
    ) -> None:
        self.built.append((role.image, str(workspace)))
        role.image = f"{role.image}-patched-{cfg['level']}"


class MixinFirst(Builder, MemoryScheduler):
    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.built = []


class MixinLast(MemoryScheduler, Builder):
    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.built = []


class InFolders(DirWorkspaceMixin, MemoryScheduler):
    pass


class InTemporaryFolders(TmpDirWorkspaceMixin, MemoryScheduler):
    pass


def role(name: str, image: str = "img", workspace: Workspace | None = None) -> Role:
    return Role(name, image, entrypoint="sh", resource=Resource(1, 0, 64), workspace=workspace)


def runner(kind: Any) -> Runner:
    return Runner("t", {"memory": lambda session, **_: kind(session)})


@pytest.mark.parametrize("kind", [MixinFirst, MixinLast])
def test_mixin_builds_at_dry_run_each_image_once(kind: Any) -> None:
    app = AppDef(
        "a", [role("x"), role("y"), role("z", "other"), role("own", workspace=Workspace({"/w": ""}))]
    )
    with runner(kind) as run:
        assert run.scheduler_run_opts("memory").resolve({})["level"] == 3
        assert run.takes_workspace("memory")
        info = run.dryrun(app, "memory", {"level": 1}, workspace="/src")
        assert info.app is not None
        images = [each.image for each in info.app.roles]
        assert images == ["img-patched-1", "img-patched-1", "other", "img-patched-1"]
        assert run.scheduler("memory").built == [("img", "/src"), ("img", "/w")]  # type: ignore[attr-defined]
        assert run.build_workspace(app, "memory", workspace="/src").roles[0].image == "img-patched-3"
    assert [each.image for each in app.roles] == ["img", "img", "other", "img"]
    assert app.roles[0].workspace is None


def test_workspace_is_copied_to_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    (tmp_path / "src" / ".env").write_text("secret")
    with runner(InFolders) as run:
        where = {"job_dir": str(tmp_path / "job")}
        info = run.dryrun(AppDef("a", [role("x")]), "memory", where, workspace=str(tmp_path / "src"))
        assert info.app is not None
        assert info.app.roles[0].image == str(tmp_path / "job")
        assert sorted(p.name for p in (tmp_path / "job").iterdir()) == ["a.py"]
        with pytest.raises(UsageError, match="already exists"):
            run.dryrun(AppDef("a", [role("x")]), "memory", where, workspace=str(tmp_path / "src"))
        both = [role("x"), role("y", "other", Workspace({str(tmp_path / "src"): "deep"}))]
        where = {"job_dir": str(tmp_path / "second")}
        run.dryrun(AppDef("a", both), "memory", where, workspace=str(tmp_path / "src"))
        assert sorted(p.name for p in (tmp_path / "second").rglob("*")) == ["a.py", "a.py", "deep"]
        # without a folder nothing is copied
        plain = run.dryrun(AppDef("a", [role("x")]), "memory", {}, workspace=str(tmp_path / "src"))
        assert plain.app is not None
        assert plain.app.roles[0].image == "img"


def test_a_workspace_is_copied_among_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a")
    with runner(InTemporaryFolders) as run:
        info = run.dryrun(AppDef("a", [role("x")]), "memory", workspace=str(tmp_path / "src"))
        assert info.app is not None
        assert (Path(info.app.roles[0].image) / "a.py").read_text() == "a"


@pytest.mark.parametrize("module", ["torchx.workspace", "torchx.workspace.api"])
@pytest.mark.parametrize("name", ["PkgInfo", "WorkspaceBuilder"])
def test_names_of_older_versions_are_there_with_a_warning(module: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(importlib.import_module(module), name).__name__ == name
