"""The page on containers is true: what it says to type works, and it names all run options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import scheduler
from docs.pages import ROOT, blocks
from docs.test_docs import run_console
from engine import IMAGE

from torchx.schedulers.docker_engine import Engine, EngineError

PAGE = ROOT / "docs" / "docker.md"
DEFAULT_IMAGE = "python:3.12-slim"


@pytest.fixture
def _default_image() -> Iterator[None]:
    """The image that the built-in components name; where the engine lacks it, that of the tests."""
    engine = Engine()
    try:
        engine.call("GET", f"/images/{DEFAULT_IMAGE}/json")
    except EngineError:
        repository, _, tag = DEFAULT_IMAGE.partition(":")
        engine.call("POST", f"/images/{IMAGE}/tag", {"repo": repository, "tag": tag})
        yield
        engine.call("DELETE", f"/images/{DEFAULT_IMAGE}")
    else:
        yield


@pytest.mark.docker
@pytest.mark.usefixtures("_default_image")
def test_what_the_page_says_to_type_works(tmp_path: Path) -> None:
    torchx = tmp_path / "bin" / "torchx"
    torchx.parent.mkdir()
    torchx.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m torchx_cli "$@"\n')
    torchx.chmod(0o755)
    env = {**os.environ, "PATH": f"{torchx.parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    before = {line.app_id for line in scheduler().list()}
    try:
        for block in blocks(PAGE):
            if "its image comes from a registry" in block.note or "tests/examples" in block.note:
                continue
            assert block.note.startswith("not run: tests/docker"), f"{block.page.name}:{block.line}"
            run_console(block, tmp_path, env)
    finally:
        for line in scheduler().list():
            if line.app_id not in before:
                scheduler().delete(line.app_id)


def test_every_run_option_is_told() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name for name, _ in scheduler().run_opts()} == told
