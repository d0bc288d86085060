"""What the tests of logs get: a writer that has ended when they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from logwriter import Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "job")
    yield made
    if made.lives:
        made.end()
    made.index.close()
