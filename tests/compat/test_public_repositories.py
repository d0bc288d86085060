"""Tests of component files, configurations and command lines as public repositories have them.

The results of TorchX were recorded by ``python tests/tools/dryruns.py record``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from project.sources import ROOT
from tools.dryruns import CORPUS, RECORDED, Case, differences, result

NAMES = sorted(path.stem for path in CORPUS.glob("*.txt"))
OF_TORCHX = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USER", "tester")
    monkeypatch.setenv("TORCHX_CONTEXT_NAME", "test")  # commands set it
    for name in ("LOGLEVEL", "TORCHXCONFIG", "TORCHX_IMAGE", "TORCHX_PARENT_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_the_result_is_that_of_a_version_of_torchx(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case.read(CORPUS / f"{name}.txt")
    case.write_to(folder)
    versions = OF_TORCHX[name]
    assert list(versions) == case.lines, "the file has changed since it was recorded"
    wrong = []
    for line in case.lines:
        with monkeypatch.context() as of_line:
            here = result(line, of_line.setenv)
        accepted = [there for there in versions[line].values() if "error" not in there]
        found = [differences(here, there) for there in accepted]
        refused = "error" in here and bool(accepted)
        differs = refused or (bool(found) and all(found))
        if differs and line not in case.reasons:
            wrong.append(f"{line}\n    {found}")
        if line in case.reasons and not differs:
            wrong.append(f"{line}\n    has a reason, but no difference")
    assert not wrong, "\n".join(wrong)


def test_each_difference_is_explained() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = {row.strip() for line in page.splitlines() for row in re.findall(r"^\| (.+?) \|", line)}
    reasons = {reason for name in NAMES for reason in Case.read(CORPUS / f"{name}.txt").reasons.values()}
    assert reasons
    assert reasons <= rows, reasons - rows


def test_there_are_enough_repositories() -> None:
    repositories = {Case.read(CORPUS / f"{name}.txt").repository for name in NAMES}
    assert sum("/" in repository for repository in repositories) >= 20
