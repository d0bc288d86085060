"""The groups of the mutation tests name files that exist."""

from __future__ import annotations

from pathlib import Path

from project.sources import ROOT
from tests.tools.mutants import GROUPS, without_effect


def test_the_files_of_each_group_exist() -> None:
    for group in GROUPS.values():
        for name in (*group.modules, *group.tests, *group.without):
            assert (ROOT / name.partition("::")[0]).exists(), name


def test_the_star_before_parameters_is_no_operator(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("def f(a=2 * 3, *, b=4 * 5):\n    return a * b\n\ndef g(*, c):\n    pass\n")
    places = without_effect(path)
    columns = [at for at, sign in enumerate(path.read_text().splitlines()[0]) if sign == "*"]
    assert [any(begin <= (1, at) < end for begin, end in places) for at in columns] == [False, True, False]
    assert any(begin <= (4, 6) < end for begin, end in places)
    assert not any(begin <= (2, 13) < end for begin, end in places)
