"""The museum of component files: comments in each file hold the exact messages about it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchx.discovery import build_app, find_component, lint, parse_arguments
from torchx.errors import UsageError

MUSEUM = Path(__file__).parents[1] / "museum"


def exhibits() -> list[str]:
    return sorted(str(p.relative_to(MUSEUM)) for p in MUSEUM.rglob("*.py"))


def said(file: str, kind: str) -> Iterator[str]:
    for line in (MUSEUM / file).read_text().splitlines():
        if line.startswith(f"# {kind}: "):
            yield line.removeprefix(f"# {kind}: ")


def cases(kind: str) -> list[tuple[str, str]]:
    return [(file, line) for file in exhibits() for line in said(file, kind)]


def start(file: str, command: str) -> list[str]:
    """Looks a component up, calls it, and returns the arguments of its first role."""
    name, *words = shlex.split(command)
    component = find_component(name if ":" in name else f"{file}:{name}")
    arguments = parse_arguments(component, words)
    app = build_app(component, arguments)
    return app.roles[0].args if app.roles else []


@pytest.fixture(autouse=True)
def _in_the_museum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(MUSEUM)


@pytest.mark.parametrize("file", exhibits())
def test_the_linter_shows_all_problems_of_a_file(file: str) -> None:
    reported = [f"{m.line}:{m.char} {m.name}: {m.description}" for m in lint(file).messages]
    expected = list(said(file, "lint"))
    if file == "broken_syntax.py":  # the words are those of the running Python
        assert [t.partition("Python")[0] for t in reported] == [e.partition("Python")[0] for e in expected]
    else:
        assert reported == expected


@pytest.mark.parametrize(("file", "line"), cases("run"))
def test_component_that_cannot_run_has_one_error_line(file: str, line: str) -> None:
    command, _, expected = line.partition(" => ")
    with pytest.raises(UsageError) as caught:
        start(file, command)
    first = caught.value.message.split("\n")[0]
    if file == "broken_syntax.py":
        first, expected = first.partition("Python")[0], expected.partition("Python")[0]
    assert first == expected


@pytest.mark.parametrize(("file", "line"), cases("ok"))
def test_a_component_that_is_fine_runs(file: str, line: str) -> None:
    command, _, expected = line.partition(" => ")
    assert start(file, command) == json.loads(expected)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = list(sys.path), set(sys.modules), list(sys.meta_path)
    start("siblings/relative.py", "trainer")
    start("torchx.py", "trainer --name x")
    new = set(sys.modules) - before[1]
    assert (list(sys.path), list(sys.meta_path)) == (before[0], before[2])
    here = {n for n in new if str(MUSEUM) in str(getattr(sys.modules[n], "__file__", ""))}
    assert here == set()
    assert not list(MUSEUM.rglob("__pycache__"))
