"""Tests of the benchmarks: they run; their numbers are not checked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from project.sources import ROOT

BENCHMARKS = ROOT / "benchmarks"
GROUPS = sorted(p.stem for p in BENCHMARKS.glob("*.py") if p.stem not in ("measure", "report"))


def run(script: str, *words: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PEER"}
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{script}.py"), "--quick", *words],
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_report_has_all_groups(tmp_path: Path) -> None:
    """Each group runs once, in a tiny size; lost lines end the benchmark with an error."""
    written = tmp_path / "RESULTS.md"
    printed = run("report", "--out", str(written))
    assert written.read_text(encoding="utf-8") == printed
    assert len(re.findall(r"^## ", printed, re.MULTILINE)) == len(GROUPS)
    rows = [line for line in printed.splitlines() if line.startswith("| ") and "| ---" not in line]
    assert len(rows) > 4 * len(GROUPS)
    assert all(line.count(" | ") == 6 for line in rows), rows
    assert "pip install torchx-nightly" in printed
    assert re.search(r"^Left out here: .*docker", printed, re.MULTILINE), "this test has no engine"


def test_a_group_can_be_measured_alone() -> None:
    assert run("run").count("\n") == 5


@pytest.mark.long
@pytest.mark.docker
def test_containers_are_compared_with_the_docker_command() -> None:
    printed = run("containers")
    assert printed.count("\n") == 7
    assert all(word in printed for word in ("`docker run`", "`docker logs`", "ignore TERM", "workspace"))


def test_missing_requirements_of_containers_are_named(tmp_path: Path) -> None:
    """There is no engine here; and without a `docker` command there is no comparison."""
    for path, lacks in ((os.environ["PATH"], "no Docker engine answers"), (str(tmp_path), "apt install")):
        done = subprocess.run(
            [sys.executable, str(BENCHMARKS / "containers.py"), "--quick"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert re.search(f"^left out: .*{lacks}", done.stderr), done.stderr


@pytest.mark.parametrize("name", GROUPS)
def test_the_report_measures_every_group(name: str) -> None:
    assert re.search(rf"^import {name}$", (BENCHMARKS / "report.py").read_text(), re.MULTILINE)
