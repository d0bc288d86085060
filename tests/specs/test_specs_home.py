"""The state home: where it is, and that it is its owner's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx.errors import StateError
from torchx.specs import TORCHX_HOME


def test_it_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "deep" / "state"))
    assert TORCHX_HOME() == tmp_path / "deep" / "state"
    folder = TORCHX_HOME("jobs", "a/b")
    assert folder == tmp_path / "deep" / "state" / "jobs" / "a" / "b"
    for made in (folder, *folder.parents[:3]):
        assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("value", [None, ""])
def test_it_is_in_the_home_folder_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORCHX_HOME", value) if value is not None else monkeypatch.delenv("TORCHX_HOME")
    assert TORCHX_HOME() == tmp_path / ".torchx"


def test_it_does_not_depend_on_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHX_HOME", "state")
    assert TORCHX_HOME() == tmp_path / "state"


def test_a_file_in_the_way_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "state"))
    with pytest.raises(StateError, match=r"cannot be created: .*\n.*set \$TORCHX_HOME"):
        TORCHX_HOME("jobs")
