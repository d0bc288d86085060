"""Tests of the long tests: a run without them prints how many it leaves out, and CI runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conformance.conftest import OF_EACH_DUTY

from project.sources import ROOT
from torchx import testing

MODULE = """
import pytest

@pytest.mark.parametrize("number", range(3))
@pytest.mark.long
def test_long(number):
    pass

def test_short():
    pass

@pytest.mark.long
@pytest.mark.slurm
def test_on_a_cluster():
    pass
"""
CONFTEST = """
from long_tests import LongTests

def pytest_configure(config):
    config.pluginmanager.register(LongTests())
    config.addinivalue_line("markers", "long")
    config.addinivalue_line("markers", "slurm")
"""


def run(folder: Path, *options: str) -> str:
    """Runs the tests of MODULE and returns the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(MODULE)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "--rootdir", str(folder), *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_long_tests_that_are_left_out_are_counted(workers: str, tmp_path: Path) -> None:
    output = run(tmp_path, "-n", workers, "-m", "not long")
    assert "\n3 long tests are not selected; run them: make test-long\n" in output
    assert "1 passed" in output


def test_nothing_is_printed_if_they_run(tmp_path: Path) -> None:
    for options, passed in ((["-m", "long"], 4), (["-m", "slurm"], 1), ([], 5)):
        output = run(tmp_path, *options)
        assert "not selected" not in output
        assert f"{passed} passed" in output


def commands(target: str, **variables: str) -> str:
    """Returns the commands of a target of the Makefile that run tests."""
    args = ["make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(
        [*args, *(f"{name}={value}" for name, value in variables.items())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return "\n".join(line.strip() for line in done.stdout.splitlines() if "pytest" in line)


def test_two_commands_run_all_tests_and_ci_runs_both() -> None:
    short, long = commands("test"), commands("test-long")
    assert short.endswith('-m "not long"')
    assert long.endswith("-m long")
    assert short.removesuffix('-m "not long"') == long.removesuffix("-m long")
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for target in ("test", "test-long"):
        assert f"suite make --no-print-directory {target} --" in steps


def test_the_conformance_tests_of_each_duty_exist() -> None:
    suites = (
        testing.SchedulerConformance,
        testing.AbilityConformance,
        testing.SweepConformance,
        testing.ServiceConformance,
    )
    assert [name for name in OF_EACH_DUTY if not any(hasattr(suite, name) for suite in suites)] == []


def test_named_tests_run_though_they_are_long() -> None:
    assert commands("test", TESTS="tests/specs").endswith("loadgroup tests/specs")
