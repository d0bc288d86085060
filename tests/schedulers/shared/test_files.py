"""Folders that engines write: private with their parents, and complete or not there."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchx.machine.files import make_folder, move_folder
from torchx.schedulers.shared.batch.workspaces import copy
from torchx.specs.app import Role
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import scan_workspaces


def test_the_first_of_two_complete_folders_stays(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    move_folder(tmp_path / "first", tmp_path / "place")
    move_folder(tmp_path / "second", tmp_path / "place")
    assert (tmp_path / "place" / "file").read_text() == "first"
    (tmp_path / "other").write_text("")
    with pytest.raises(OSError, match="other"):
        move_folder(tmp_path / "second", tmp_path / "other")


def test_workspace_on_shared_disk_is_private_with_its_parents(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("")
    role = Role("w", "", workspace=Workspace({str(tmp_path / "project"): ""}))
    ((_, tree),) = scan_workspaces([role], {})
    before = os.umask(0)
    try:
        copy(tree, tmp_path / "jobs" / "workspaces" / "digest", lambda line: None)
    finally:
        os.umask(before)
    for folder in ("jobs", "jobs/workspaces"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700, folder
    assert [path.name for path in (tmp_path / "jobs" / "workspaces").iterdir()] == ["digest"]


def test_threads_that_make_one_parent_do_not_collide(tmp_path: Path) -> None:
    """The parent that a thread did not find may exist a moment later."""
    with ThreadPoolExecutor(4) as pool:
        for number in range(200):
            folders = [tmp_path / str(number) / "logs" / str(each) for each in range(4)]
            assert list(pool.map(make_folder, folders)) == [None] * 4
