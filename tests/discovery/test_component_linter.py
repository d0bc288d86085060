"""The linter as a whole: what it takes, and what it counts. What it finds is the museum's matter."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from torchx.discovery import ComponentNotFoundException, LinterMessage, lint
from torchx.specs.file_linter import (
    ArgTypeValidator,
    ComponentFunctionValidator,
    ReturnTypeValidator,
    get_fn_docstring,
    validate,
)

TEXT = """from torchx.specs import AppDef
def fine(a: int) -> AppDef:
    return AppDef("a")
def wrong(a, b) -> AppDef:
    return AppDef("a")
def helper(a): return a
also = fine
"""


@pytest.fixture
def comps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "jobs" / "comps.py"
    path.parent.mkdir()
    path.write_text(TEXT)
    (path.parent / "more.py").write_text("def (")
    (path.parent / ".hidden").mkdir()
    (path.parent / ".hidden" / "x.py").write_text("def (")
    return path


@pytest.mark.parametrize(
    ("target", "lines", "checked", "faulty", "fine"),
    [
        ("jobs/comps.py", [4, 4], 2, 1, 1),
        ("jobs/comps.py:fine", [], 1, 0, 1),
        ("jobs/comps.py:wrong", [4, 4], 1, 1, 0),
        ("jobs/comps.py:helper", [6], 1, 1, 0),
        ("jobs", [4, 4, 1], 3, 2, 1),
        ("jobs.comps", [4, 4], 2, 1, 1),
        ("jobs.comps:wrong", [4, 4], 1, 1, 0),
        ("jobs.comps.fine", [], 1, 0, 1),
        ("utils.echo", [], 1, 0, 1),
    ],
)
def test_targets(target: str, lines: list[int], checked: int, faulty: int, fine: int, comps: Path) -> None:
    report = lint(target)
    assert [m.line for m in report.messages] == lines
    assert (report.checked, report.faulty, report.fine) == (checked, faulty, fine)


def test_odd_entries_of_a_folder_hide_no_problems(comps: Path) -> None:
    folder = comps.parent
    (folder / ".#two.py").symlink_to("user@host.1:2")  # the lock of an editor
    (folder / "package.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "unreadable.py").symlink_to("/proc/self/mem")
    report = lint("jobs")
    assert [m.line for m in report.messages] == [4, 4, 1, 1]
    assert report.messages[-1].description == "cannot be read: Input/output error"
    assert (report.checked, report.faulty, report.fine) == (4, 3, 1)


def test_a_problem_is_reported_with_its_place(comps: Path) -> None:
    assert str(lint("jobs/comps.py").messages[0]) == (
        "jobs/comps.py:4:11 wrong: argument `a` has no type annotation; add one, e.g. `a: str`"
    )


@pytest.mark.parametrize(
    "target", ["nope.py", "nope", "jobs/nope.py:x", "jobs/comps.py:nope", "nope/", "a.b:c"]
)
def test_targets_that_are_not_there(target: str, comps: Path) -> None:
    with pytest.raises(ComponentNotFoundException):
        lint(target)


def test_columns_count_characters(tmp_path: Path) -> None:
    path = tmp_path / "c.py"
    path.write_text(TEXT.replace("wrong(a, b)", "größe(ä: int, b)"))
    assert [(m.line, m.char) for m in validate(str(path), "größe")] == [(4, 19)]


def test_the_documented_door(comps: Path) -> None:
    assert validate(str(comps), "fine") == []
    messages = validate(str(comps), "wrong")
    assert messages[0] == LinterMessage(
        "wrong", "argument `a` has no type annotation; add one, e.g. `a: str`", 4, 11, "error", str(comps)
    )
    assert validate(str(comps), "nope")[0].description.startswith("no component `nope` in ")
    assert validate(str(comps.parent / "more.py"), "x")[0].line == 1
    with pytest.raises(OSError, match=r"none\.py"):
        validate(str(comps.parent / "none.py"), "x")


def test_checks_of_ones_own_stand_in_for_ours(comps: Path) -> None:
    class NoShortNames(ComponentFunctionValidator):
        def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
            return [
                self._gen_linter_message(f"`{a.arg}` is too short", a.lineno)
                for a in app_specs_func_def.args.args
                if len(a.arg) < 2
            ]

    result = validate(str(comps), "wrong", validators=[NoShortNames()])
    assert [(m.line, m.description) for m in result] == [(4, "`a` is too short"), (4, "`b` is too short")]
    assert len(validate(str(comps), "wrong", [ArgTypeValidator(), ReturnTypeValidator("AppDef")])) == 2
    assert validate(str(comps), "fine", [ReturnTypeValidator("Job")])[0].description == (
        "returns `AppDef`; a component returns Job"
    )


@pytest.mark.parametrize(
    ("argument", "fits"),
    [('y: int = "z"', False), ("y: bool = 1", False), ("y: int = True", False), ("y: float = 1", True),
     ("y: int = None", True), ("y: list[int] = None", True)],
)  # fmt: skip
def test_a_default_has_the_type_of_its_argument(tmp_path: Path, argument: str, fits: bool) -> None:
    path = tmp_path / "c.py"
    source = f"from torchx.specs import AppDef\n\ndef app({argument}) -> AppDef: ...\n"
    path.write_text(source, encoding="utf-8")
    found = [message.description for message in validate(str(path), "app")]
    assert found == [f"argument `{argument}` has a default of another type".replace('"', "'")] * (not fits)


def test_docstrings_of_functions() -> None:
    def documented(lr: float, n: int = 3, *words: str) -> None:
        """Trains.

        For long.

        Args:
            lr: learning
                rate
        """

    def silent(a: int) -> None: ...

    text, arguments = get_fn_docstring(documented)
    assert text == "Trains.\n\nFor long."
    assert arguments == {"lr": "learning rate", "n": "(default: 3)", "words": ""}
    text, arguments = get_fn_docstring(silent)
    assert text.startswith("silent TIP: ")
    assert arguments == {"a": "(required)"}


@pytest.mark.parametrize(
    "doc",
    [
        "Trains.\n\n:param lr: learning rate\n",
        "Trains.\n\nParameters\n----------\nlr : float\n    learning rate\n",
        "Trains.\n\nArgs:\n    lr (float): learning rate\n",
    ],
)
def test_other_styles_of_docstrings(doc: str) -> None:
    def fn(lr: float) -> None: ...

    fn.__doc__ = doc
    assert get_fn_docstring(fn) == ("Trains.", {"lr": "learning rate"})
