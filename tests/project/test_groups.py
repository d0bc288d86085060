"""Tests of test groups: a group runs in one process, so that its tests can share resources of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(4))
@pytest.mark.xdist_group("shared")
def test_it(number):
    with open("workers", "a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")
"""


def test_a_group_is_not_spread_over_processes(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(MODULE)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # other plugins take seconds to load
    options = ["-p", "xdist", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = (tmp_path / "workers").read_text().split()
    assert len(workers) == 8
    assert len(set(workers)) == 1
