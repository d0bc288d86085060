"""Tests of the version: it is defined in one file, and shown everywhere."""

from __future__ import annotations

import re
import subprocess
import sys

from project.sources import ROOT, all_files
from torchx.version import __version__


def test_it_is_defined_in_one_python_file() -> None:
    quoted = {f'"{__version__}"', f"'{__version__}'"}
    holders = [p for p in all_files() if any(q in p.read_text(encoding="utf-8") for q in quoted)]
    assert holders == [ROOT / "torchx" / "version.py"]


def test_the_project_file_reads_it() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in text
    assert f'"{__version__}"' not in text


def test_the_changelog_begins_with_it_or_with_unreleased() -> None:
    headings = re.findall(r"^## \[?([^\]\n ]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings
    assert headings[0] in ("Unreleased", __version__)


def test_the_command_line_shows_it() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchx_cli", "--version"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert __version__ in done.stdout
