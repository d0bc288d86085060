"""Tests of the documentation: its commands print the output shown; its links and tables are correct."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import fakegpus
import pytest
from sshmachines import machine

from docs.pages import PAGES, ROOT, Block, blocks, matches

BY_NAME = {page.name: page for page in PAGES}
MOST_COMMANDS = 10
"""Commands of a page whose session is not long."""


def is_long(page: Path) -> bool:
    """Returns True if a page has many commands, or starts PyTorch."""
    found = [block for block in blocks(page) if block.is_run]
    commands = sum(len(list(block.commands())) for block in found)
    return commands > MOST_COMMANDS or any(block.needs_torch for block in found)


SESSIONS = [pytest.param(page.name, marks=[pytest.mark.long] * is_long(page)) for page in PAGES]
"""The pages by name."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has installed the project and works in a checkout of it."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHX", "PYTEST"))}
    (tmp_path / "bin").mkdir()
    torchx = tmp_path / "bin" / "torchx"
    torchx.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m torchx_cli "$@"\n')
    torchx.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    own["TORCHX_SETUP_HOME"] = str(tmp_path / "setup")
    return {**own, "HOME": str(tmp_path), "PATH": path, "COLUMNS": "100", "PYTHONPATH": str(ROOT)}


def run_console(block: Block, cwd: Path, env: dict[str, str]) -> None:
    for line, command, expected in block.commands():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=cwd,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        printed = done.stdout
        if block.needs_torch:
            # on a busy machine, PyTorch's agents report errors if another one has ended first
            printed = "".join(
                line
                for line in printed.splitlines(keepends=True)
                if "│" not in line or re.search(r"│ \[\d+\]:", line)
            )
        assert matches(expected, printed), (
            f"{block.page.name}:{line}: $ {command}\nprinted:\n{done.stdout}\nbut the page says:\n"
            + "\n".join(expected)
        )


def run_python(block: Block, cwd: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{block.page.name}:{block.line}\n{done.stderr}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SESSIONS)
def test_the_examples_of_a_page_work(name: str, tmp_path: Path, env: dict[str, str]) -> None:
    """The blocks of a page form one session."""
    env["TORCHX_PROVENANCE"] = str(int(name == "repeating.md"))  # a process after each submission
    if name in ("queue.md", "first_day.md"):
        fakegpus.FakeGpus(tmp_path / "bin", 4)
        env.pop("CUDA_VISIBLE_DEVICES", None)
    with ExitStack() as stack:
        if name == "contexts.md":
            lab = stack.enter_context(machine())
            env.update(lab.env() | {"PATH": f"{lab.folder}/bin:{env['PATH']}"})
        run_session(BY_NAME[name], tmp_path, env)


def run_session(page: Path, tmp_path: Path, env: dict[str, str]) -> None:
    name, skipped = page.name, []
    for block in blocks(page):
        if block.needs_torch and not all(importlib.util.find_spec(m) for m in ("torch", "sklearn")):
            skipped.append(f"{name}:{block.line}")
        elif block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console" and block.is_run:
            run_console(block, tmp_path, env)
        elif block.language == "python" and block.is_run:
            run_python(block, tmp_path, env)
    if skipped:
        pytest.skip(f"no PyTorch for {', '.join(skipped)}: .venv/bin/pip install torch scikit-learn numpy")


@pytest.mark.parametrize("name", BY_NAME)
def test_links_are_valid(name: str) -> None:
    page = BY_NAME[name]
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing, missing


def test_every_page_can_be_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    missing = [
        page.name
        for page in PAGES
        if page.parent.name == "docs"
        and not page.read_text(encoding="utf-8").startswith("<!-- text: ")  # README.md links to that file
        and f"docs/{page.name}" not in readme
    ]
    assert not missing, missing


def test_blocks_that_are_not_run_have_a_reason() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.note in ("", "torch") or block.file or not block.is_run, block
            assert block.note.strip() != "not run:", block
            assert block.language, f"{page.name}:{block.line}: no language"


def test_the_commands_are_in_the_order_of_the_help() -> None:
    from torchx_cli.app import GROUPS

    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = [part.split("\n", 1) for part in page.split("\n## ")[1:]][: len(GROUPS)]
    groups = [(title, re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)) for title, rows in sections]
    assert groups == [(title, list(commands)) for title, commands in GROUPS.items()]


def test_the_levels_of_the_parts_are_documented() -> None:
    from project.test_floors import FLOORS

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    documented: dict[int, set[str]] = {}
    for floor, parts in re.findall(r"^\| (\d+) \| (.*?) \|", text, re.MULTILINE):
        documented.setdefault(int(floor), set()).update(re.findall(r"`([^`]+)`", parts))
    assert documented == {number: {*names} - {"torchx"} for number, names in enumerate(FLOORS)}


def test_the_files_that_the_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = re.findall(r"`([\w.]+/[\w./]*)`", text)
    names = [name for name in names if "NAME" not in name]
    assert len(names) > 20
    assert not [name for name in names if not (ROOT / name).exists()]


def test_the_functions_that_the_architecture_names_exist() -> None:
    import pkgutil

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = text.partition("| duty | function |")[2].partition("\n\n")[0]
    names = re.findall(r"`([\w.]+\.\w+)`", rows)
    assert len(names) > 30
    for name in names:
        assert pkgutil.resolve_name(name)


def test_the_abilities_of_a_scheduler_are_documented() -> None:
    import torchx.scheduling.base

    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    protocols = {
        name for name, value in vars(torchx.scheduling.base).items() if getattr(value, "_is_protocol", False)
    }
    assert protocols - {"Protocol"} == set(re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE))


def test_every_field_of_a_role_is_documented() -> None:
    from dataclasses import fields

    from torchx.specs import Role

    table = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`(\w+)", table))
    # these do not depend on the scheduler; each part of a resource has a row of its own
    excluded = {"name", "pre_proc", "overrides", "resource"}
    assert {field.name for field in fields(Role)} - excluded <= documented


def test_every_run_option_of_local_jobs_is_documented() -> None:
    from torchx.schedulers.local.scheduler import create_cwd_scheduler

    page = (ROOT / "docs" / "local_jobs.md").read_text(encoding="utf-8")
    assert {name for name, _ in create_cwd_scheduler("").run_opts()} <= set(
        re.findall(r"^\| `(\w+)` \|", page, re.M)
    )
