"""The page on containers is true: what it says to type works, and it names all run options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import fakegpus
import pytest
from containers import scheduler
from docs.pages import ROOT, blocks
from docs.test_docs import run_console
from engine import IMAGE
from gpu_engine import gpu_engine

from torchx.schedulers.docker.engine.client import Engine, EngineError

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


@pytest.mark.long
@pytest.mark.docker
@pytest.mark.usefixtures("_default_image")
def test_what_the_page_says_to_type_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakegpus.install(monkeypatch, tmp_path, 4)
    with gpu_engine() as engine:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{engine.path}")
        run_page(tmp_path)


def run_page(tmp_path: Path) -> None:
    torchx = tmp_path / "bin" / "torchx"
    torchx.parent.mkdir()
    command = f'PYTHONPATH={ROOT} {sys.executable} -m torchx_cli "$@"'
    handles = tmp_path / "handles"  # others have jobs on the engine, too
    torchx.write_text(f'#!/bin/sh\n{command}\ncode=$?\ncat "$TORCHX_HOME/last" >> {handles}\nexit $code\n')
    torchx.chmod(0o755)
    env = {**os.environ, "PATH": f"{torchx.parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    try:
        for block in blocks(PAGE):
            if "its image comes from a registry" in block.note or "tests/examples" in block.note:
                continue
            assert block.note.startswith("not run: tests/schedulers/docker"), (
                f"{block.page.name}:{block.line}"
            )
            run_console(block, tmp_path, env)
    finally:
        for handle in set(handles.read_text().split()):
            scheduler().delete(handle.rpartition("/")[2])


def test_every_run_option_is_reported() -> None:
    result = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name for name, _ in scheduler().run_opts()} == result
