"""The groups of the mutation tests name files that exist."""

from __future__ import annotations

from project.sources import ROOT
from tests.tools.mutants import GROUPS


def test_the_files_of_each_group_exist() -> None:
    for group in GROUPS.values():
        for name in (*group.modules, *group.tests, *group.without):
            assert (ROOT / name.partition("::")[0]).exists(), name
