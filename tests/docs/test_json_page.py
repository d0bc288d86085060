"""The tables of JSON output on the site are those of its types."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType

import pytest

from docs.pages import ROOT
from torchx_cli.schemas.errors import CODES
from torchx_cli.schemas.outputs import OUTPUTS


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of the site that makes the tables."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    return importlib.import_module("json_tables")


def test_the_site_has_every_command_and_object(tables: ModuleType) -> None:
    page = tables.generated()
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert {name for title in titles for name in title.split(", ")} >= {*OUTPUTS, "Errors"}
    assert sorted(re.findall(r"<!-- (\w+) -->\n", page)) == sorted(tables.objects([*OUTPUTS, "error"]))
    assert re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", page, re.MULTILINE) == list(CODES.items())


def test_an_object_that_is_described_elsewhere_names_its_flag(tables: ModuleType) -> None:
    _, _, rerun = tables.generated().partition("## rerun\n")
    assert "With `--dryrun`:\n\nThe object of `run --dryrun`.\n" in rerun.partition("## status")[0]
