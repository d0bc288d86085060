"""Tests of the files of this project: their places, first lines and names."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tokenize

import pytest

from project.sources import PACKAGES, ROOT, all_files, modules, tree_of

pytestmark = pytest.mark.xdist_group("sources")  # one process: each file is parsed once


def test_components_and_schedulers_are_links() -> None:
    for name in ("components", "schedulers"):
        link = ROOT / "torchx" / name
        assert link.is_symlink()
        assert str(link.readlink()) == f"../{name}"


def test_every_file_begins_with_its_purpose() -> None:
    wrong = []
    for path in all_files():
        docstring = ast.get_docstring(tree_of(path))
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        if not docstring or not first.startswith('"""') or len(first) < 15:
            wrong.append(str(path.relative_to(ROOT)))
    assert not wrong, wrong


def test_there_are_no_todo_comments() -> None:
    marks = {"TODO", "FIXME", "XXX", "HACK"}
    wrong = []
    for path in all_files():
        if not any(mark in path.read_text(encoding="utf-8") for mark in marks):
            continue
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type == tokenize.COMMENT and marks & set(re.findall(r"\w+", token.string)):
                    wrong.append(f"{path.relative_to(ROOT)}:{token.start[0]}")
    assert not wrong, wrong


def test_the_typing_marks_are_there() -> None:
    assert (ROOT / "torchx" / "py.typed").is_file()
    assert (ROOT / "torchx_cli" / "py.typed").is_file()


def test_no_module_was_loaded_outside_the_packages() -> None:
    """This process has collected every file, also those behind the links."""
    assert not {"components", "schedulers"} & sys.modules.keys()


@pytest.mark.parametrize("cwd", [ROOT, ROOT / "tests"], ids=["root", "elsewhere"])
def test_no_folder_is_a_top_level_module(cwd: object) -> None:
    """Loads all modules in a new process, also at the root, where the folders could become packages."""
    names = [name for name in modules() if not name.endswith("__main__")]
    code = (
        "import sys, importlib\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(sorted({'components', 'schedulers'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=str(cwd), env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


LIGHT = ("torchx.specs", "torchx.errors", "torchx.scheduling.base", "torchx.plugins", "torchx.jobs.view")
HEAVY = {
    "yaml",
    "fsspec",
    "docker",
    "rich",
    "docstring_parser",
    "pydantic",
    "importlib.metadata",
    "asyncio",
    "logging",
    "requests",
    "torch",
}


@pytest.mark.parametrize("name", LIGHT)
def test_every_command_loads_few_modules(name: str) -> None:
    code = f"import sys; before = set(sys.modules); import {name}; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not HEAVY & set(done.stdout.split())


def test_the_packages_are_those_of_the_checkout() -> None:
    for package, folder in PACKAGES.items():
        assert package in modules(), folder
