"""Training in containers on a network of the engine, with the environment of these tests mounted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from containers import describe, replicas, scheduler
from docs.pages import ROOT, blocks
from engine import IMAGE

pytestmark = [pytest.mark.torch, pytest.mark.docker, pytest.mark.timeout(300)]


def script_of_the_page() -> str:
    """Returns what the page on containers says to type, with the image of the tests."""
    (block,) = (b for b in blocks(ROOT / "docs" / "docker.md") if "tests/examples runs this" in b.note)
    script = block.text.replace("$ ", "").replace("debian:12-slim", IMAGE)
    if sys.base_prefix == "/usr":  # the page says so: the image has that Python itself
        script = script.replace(",type=bind,src=$BASE,dst=$BASE,readonly", "")
    return script


@pytest.mark.long
def test_digits_train_in_two_containers(tmp_path: Path) -> None:
    """A rendezvous over the network, code that comes by a workspace, two containers that share the work."""
    torchx = tmp_path / "torchx"
    torchx.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m torchx_cli "$@"\n')
    torchx.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", script_of_the_page()],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    app_id = done.stdout.strip().rpartition("/")[2]
    try:
        assert done.returncode == 0, done.stderr
        assert "training on 2 processes" in done.stderr
        (accuracy,) = re.findall(r"held-out accuracy ([\d.]+) %", done.stderr)
        assert float(accuracy) > 95
        both = replicas(describe(app_id))
        assert len({replica.hostname for replica in both}) == 2
        assert [replica.attempts[-1].exit_code for replica in both] == [0, 0]
    finally:
        scheduler().delete(app_id)
