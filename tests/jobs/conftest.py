"""What the tests of logs get: a writer that has ended when they have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from logwriter import Writer

from torchx.jobs.paths import Home


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "job")
    yield made
    if made.lives:
        made.end()
    made.index.close()


@pytest.fixture
def home() -> Home:
    home = Home(Path(os.environ["TORCHX_HOME"]))
    home.path.mkdir(mode=0o700)
    return home
