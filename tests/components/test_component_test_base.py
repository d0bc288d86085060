"""The base class of people's unit tests for components."""

from __future__ import annotations

import os
import unittest
from pathlib import Path
from types import ModuleType

import pytest

from torchx.components import utils
from torchx.components.component_test_base import ComponentTestCase
from torchx.specs import AppState


def outcome(body: str, **names: object) -> unittest.TestResult:
    """Runs the body of a test as people write it."""
    scope = {"ComponentTestCase": ComponentTestCase, **names}
    exec(f"class Case(ComponentTestCase):\n    def test(self):\n        {body}\n", scope)
    result = unittest.TestResult()
    kind = scope["Case"]
    assert isinstance(kind, type)
    kind("test").run(result)
    return result


def test_components_are_validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome("self.validate(utils, 'echo')", utils=utils).wasSuccessful()
    assert "nosuch" in outcome("self.validate(utils, 'nosuch')", utils=utils).failures[0][1]
    bad = ModuleType("bad")
    bad.__file__ = str(tmp_path / "bad.py")
    Path(bad.__file__).write_text("from torchx.specs import AppDef\n\n\ndef job(cfg) -> AppDef: ...\n")
    assert "`cfg` has no type annotation" in outcome("self.validate(bad, 'job')", bad=bad).failures[0][1]


def test_components_are_run_in_a_state_home_of_the_test() -> None:
    home = os.environ.get("TORCHX_HOME")
    seen: list[object] = []
    result = outcome(
        "seen.extend([self.run_component(echo, {'text': 'hi'}, timeout=60), os.environ['TORCHX_HOME']])",
        seen=seen,
        os=os,
        echo=lambda text: utils.echo(text),
    )
    assert result.wasSuccessful(), result.errors
    status, used = seen
    assert getattr(status, "state", None) is AppState.SUCCEEDED
    assert used != home
    assert not Path(str(used)).exists()
    assert os.environ.get("TORCHX_HOME") == home


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    seen: list[object] = []
    result = outcome(
        "seen.append(self.run_component(sleep, timeout=0.05))",
        seen=seen,
        sleep=lambda: utils.sh("echo $$ > " + str(tmp_path / "pid") + "; exec sleep 600"),
    )
    assert result.wasSuccessful(), result.errors
    assert getattr(seen[0], "state", None) in (AppState.RUNNING, AppState.PENDING, AppState.SUBMITTED)
    if (tmp_path / "pid").exists() and (text := (tmp_path / "pid").read_text()):
        assert not Path(f"/proc/{text.strip()}").exists()
