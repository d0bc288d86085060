"""Tests of the pictures: they match the current output, and load nothing from the network."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import PAGES, ROOT

# one process: the pictures are taken once, which may take minutes beside other work
pytestmark = [pytest.mark.xdist_group("pictures"), pytest.mark.timeout(600)]

PICTURES = ROOT / "docs" / "pictures"
NAMES = ("run", "failure", "log", "status", "list", "stacks")
LIVE = ("top",)
"""Pictures of measurements, which differ from run to run."""


def lines(path: Path) -> list[str]:
    """Returns the sorted lines of a picture: the order of replicas differs on a busy machine."""
    found: dict[str, list[str]] = {}
    for place, text in re.findall(r'<text [^>]* y="([^"]*)"[^>]*>(.*?)</text>', path.read_text("utf-8")):
        found.setdefault(place, []).append(html.unescape(text).replace("\xa0", " "))
    return sorted("".join(parts).rstrip() for parts in found.values())


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of newly taken pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    script = ROOT / "docs" / "pictures.py"
    done = subprocess.run(
        [sys.executable, script, "--out", folder, "--only", "terminal"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_picture_shows_the_current_output(name: str, taken: Path) -> None:
    old, new = lines(PICTURES / f"{name}.svg"), lines(taken / f"{name}.svg")
    assert old == new, "outdated: make pictures"
    assert len(new) > 3


@pytest.mark.parametrize("name", (*NAMES, *LIVE))
def test_a_picture_loads_nothing(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    assert re.findall(r"\w+://(?!torchx/)[^\"'\s]*", text) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in text
    assert "<image" not in text


def test_every_picture_is_shown_and_there() -> None:
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"!\[[^\]]+\]\([^)]*pictures/(\w+)\.svg\)", page.read_text())
    }
    assert shown == {*NAMES, *LIVE} == {path.stem for path in PICTURES.glob("*.svg")}
    photographs = {name for page in PAGES for name in re.findall(r"pictures/(\w+)\.png\)", page.read_text())}
    assert photographs == {path.stem for path in PICTURES.glob("*.png")}
    for path in PICTURES.glob("*.png"):
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG")
        assert len(data) < 200_000, path
