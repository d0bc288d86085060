"""The base class of people's unit tests for components."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from torchx.components import utils
from torchx.components.component_test_base import ComponentTestCase
from torchx.runner import get_runner
from torchx.specs import AppDef, AppState


def outcome(body: Callable[[ComponentTestCase], None]) -> unittest.TestResult:
    """Runs the body of a test as a person's test runner does."""

    class Case(ComponentTestCase):
        def test(self) -> None:
            body(self)

    result = unittest.TestResult()
    Case("test").run(result)
    return result


def test_components_are_validated(tmp_path: Path) -> None:
    assert outcome(lambda case: case.validate(utils, "echo")).wasSuccessful()
    assert "nosuch" in outcome(lambda case: case.validate(utils, "nosuch")).failures[0][1]
    bad = ModuleType("bad")
    bad.__file__ = str(tmp_path / "bad.py")
    Path(bad.__file__).write_text("from torchx.specs import AppDef\n\n\ndef job(cfg) -> AppDef: ...\n")
    assert "`cfg` has no type annotation" in outcome(lambda case: case.validate(bad, "job")).failures[0][1]


def test_components_are_run_in_state_home_of_test() -> None:
    home = os.environ.get("TORCHX_HOME")
    used = []

    def body(case: ComponentTestCase) -> None:
        status = case.run_component(utils.echo, {"msg": "hi"}, timeout=60)
        assert status is not None
        assert status.state is AppState.SUCCEEDED
        with get_runner("test") as runner:
            assert not list(runner.list("local_cwd"))
        used.append(os.environ["TORCHX_HOME"])

    result = outcome(body)
    assert result.wasSuccessful(), (result.errors, result.failures)
    assert used != [home]
    assert not Path(used[0]).exists()
    assert os.environ.get("TORCHX_HOME") == home


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    def sleep() -> AppDef:
        return utils.sh(f"echo $$ > {pid}; exec sleep 600")

    def body(case: ComponentTestCase) -> None:
        status = case.run_component(sleep, timeout=0.05)
        assert status is not None
        assert not status.is_terminal()

    result = outcome(body)
    assert result.wasSuccessful(), (result.errors, result.failures)
    if pid.exists() and (text := pid.read_text()):
        assert not Path(f"/proc/{text.strip()}").exists()
