"""Entry points by group: the same that the standard library finds, without it where there are none."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from torchx.plugins.groups import entry_points

INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n",
    "entry_points.txt": "[torchx.some_group]\none = some:one\ntwo = some.deep:two\n",
}


def _found(group: str) -> list[tuple[str, str]]:
    return [(entry.name, entry.value) for entry in entry_points(group)]


@pytest.mark.parametrize("folder", ["some-1.0.dist-info", "some.egg-info"])
def test_a_distribution_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    (tmp_path / folder).mkdir()
    for name, text in INFO.items():
        (tmp_path / folder / name.replace("METADATA", "PKG-INFO" if "egg" in folder else name)).write_text(
            text
        )
    assert _found("torchx.some_group") == []
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _found("torchx.some_group") == [("one", "some:one"), ("two", "some.deep:two")]
    assert _found("torchx.some") == []


def test_a_distribution_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        for name, text in INFO.items():
            archive.writestr(f"some-1.0.dist-info/{name}", text)
    monkeypatch.syspath_prepend(str(tmp_path / "some.zip"))
    assert _found("torchx.some_group") == [("one", "some:one"), ("two", "some.deep:two")]


def test_a_distribution_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some-1.0.dist-info").mkdir()
    for name, text in INFO.items():
        (tmp_path / "some-1.0.dist-info" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    assert [name for name, _ in _found("torchx.some_group")] == ["one", "two"]


def test_every_group_that_is_installed_is_found() -> None:
    for group in {entry.group for dist in metadata.distributions() for entry in dist.entry_points}:
        assert _found(group), group


def test_an_unused_group_costs_little() -> None:
    code = (
        "import sys; from torchx.plugins.groups import entry_points; entry_points('torchx.none'); "
        "sys.exit('importlib.metadata' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
