"""A machine behind ssh for the tests of a module, and the context that leads to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import torchx
from sshmachines import Machine, add, machine


@pytest.fixture(scope="module")
def _machine() -> Iterator[tuple[Machine, list[str]]]:
    with machine() as found:
        yield found, []


@pytest.fixture
def lab(_machine: tuple[Machine, list[str]], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine, with the context `lab`; torchx was sent to it."""
    found, known = _machine
    for name, value in found.env().items():
        monkeypatch.setenv(name, value)
    add()
    contexts = Path(torchx_home()) / "contexts.json"
    if known:
        contexts.write_text(known[0])
    else:
        done = torchx("context", "check", "lab")
        assert done.returncode == 0, done.stderr
        known.append(contexts.read_text())
    return found


def torchx_home() -> str:
    import os

    return os.environ["TORCHX_HOME"]
